package py

import (
	"math/big"
	"testing"
	"time"
)

// The expected values are those of CPython 3.11.
func TestStrptime(t *testing.T) {
	date := func(y, m, d, hh, mm, ss int) time.Time {
		return time.Date(y, time.Month(m), d, hh, mm, ss, 0, time.UTC)
	}
	for name, tc := range map[string]struct {
		read func(Value) (time.Time, error)
		text Value
		want time.Time
		err  string
	}{
		"plain date":               {ParseDate, "2024-09-01", date(2024, 9, 1, 0, 0, 0), ""},
		"single digits":            {ParseDate, "2024-9-1", date(2024, 9, 1, 0, 0, 0), ""},
		"blank before the day":     {ParseDate, "2024-09- 7", date(2024, 9, 7, 0, 0, 0), ""},
		"digits of another script": {ParseDate, "٢٠٢٤-09-2٣", date(2024, 9, 23, 0, 0, 0), ""},
		"leap day":                 {ParseDate, "2024-02-29", date(2024, 2, 29, 0, 0, 0), ""},
		"no leap day": {ParseDate, "2023-02-29", time.Time{},
			"ValueError: day is out of range for month"},
		"day 31 of a short month": {ParseDate, "2024-09-31", time.Time{},
			"ValueError: day is out of range for month"},
		"day 39 is 3 and a rest": {ParseDate, "2024-01-39", time.Time{},
			"ValueError: unconverted data remains: 9"},
		"day 0": {ParseDate, "2024-01-0", time.Time{},
			"ValueError: time data '2024-01-0' does not match format '%Y-%m-%d'"},
		"month 13": {ParseDate, "2024-13-01", time.Time{},
			"ValueError: time data '2024-13-01' does not match format '%Y-%m-%d'"},
		"superscript": {ParseDate, "2024-01-²", time.Time{},
			"ValueError: time data '2024-01-²' does not match format '%Y-%m-%d'"},
		"rest": {ParseDate, "2024-01-01 x", time.Time{},
			"ValueError: unconverted data remains:  x"},
		"rest before range": {ParseDate, "2024-02-30 x", time.Time{},
			"ValueError: unconverted data remains:  x"},
		"year 0": {ParseDate, "0000-01-01", time.Time{}, "ValueError: year 0 is out of range"},
		"year 1": {ParseDate, "0001-01-01", date(1, 1, 1, 0, 0, 0), ""},
		"short year": {ParseDate, "24-01-01", time.Time{},
			"ValueError: time data '24-01-01' does not match format '%Y-%m-%d'"},
		"empty": {ParseDate, "", time.Time{},
			"ValueError: time data '' does not match format '%Y-%m-%d'"},
		"quote in the text": {ParseDate, "it's", time.Time{},
			`ValueError: time data "it's" does not match format '%Y-%m-%d'`},
		"None": {ParseDate, nil, time.Time{},
			"TypeError: strptime() argument 1 must be str, not None"},
		"int": {ParseDate, int64(5), time.Time{},
			"TypeError: strptime() argument 1 must be str, not int"},
		"big int": {ParseDate, new(big.Int), time.Time{},
			"TypeError: strptime() argument 1 must be str, not int"},
		"dict": {ParseDate, NewDict(), time.Time{},
			"TypeError: strptime() argument 1 must be str, not dict"},
		"moment":         {ParseDateTime, "2024-09-02 05:40:15", date(2024, 9, 2, 5, 40, 15), ""},
		"blanks between": {ParseDateTime, "2024-09-02 \t5:4:7", date(2024, 9, 2, 5, 4, 7), ""},
		"no blank": {ParseDateTime, "2024-09-0205:40:15", time.Time{},
			"ValueError: time data '2024-09-0205:40:15' does not match format '%Y-%m-%d %H:%M:%S'"},
		"second 61": {ParseDateTime, "2024-09-02 05:40:61", time.Time{},
			"ValueError: second must be in 0..59"},
		"second 75 is 7 and a rest": {ParseDateTime, "2024-09-02 05:40:75", time.Time{},
			"ValueError: unconverted data remains: 5"},
		"hour 24": {ParseDateTime, "2024-09-02 24:40:15", time.Time{},
			"ValueError: time data '2024-09-02 24:40:15' does not match format '%Y-%m-%d %H:%M:%S'"},
		"date without time": {ParseDateTime, "2024-09-02", time.Time{},
			"ValueError: time data '2024-09-02' does not match format '%Y-%m-%d %H:%M:%S'"},
		"fraction of a second": {ParseDateTime, "2024-05-01 22:14:05.858817", time.Time{},
			"ValueError: unconverted data remains: .858817"},
		"day out of range, second 60": {ParseDateTime, "2024-09-31 05:40:60", time.Time{},
			"ValueError: day is out of range for month"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.read(tc.text)
			if text := errorText(err); text != tc.err {
				t.Fatalf("error of %v: got %q, want %q", tc.text, text, tc.err)
			}
			if !got.Equal(tc.want) {
				t.Errorf("%v: got %v, want %v", tc.text, got, tc.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func FuzzStrptime(f *testing.F) {
	for _, s := range []string{"2024-09-01", "2024-9-1 1:2:3", "٢٠٢٤-1- 1", "9999-12-31 23:59:61",
		"0000-0-0", "\xff-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, read := range []func(Value) (time.Time, error){ParseDate, ParseDateTime} {
			if at, err := read(s); err == nil && (at.Year() < 1 || at.Year() > 9999) {
				t.Errorf("%q: got year %d, want 1 to 9999", s, at.Year())
			}
		}
	})
}

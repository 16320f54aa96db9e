package py

import (
	"math/big"
	"testing"
	"time"
)

// The expected values are those of CPython 3.11: the time, or the exception.
func TestStrptime(t *testing.T) {
	const noDate, noTime = " does not match format '%Y-%m-%d'", " does not match format '%Y-%m-%d %H:%M:%S'"
	for text, want := range map[Value]string{
		"2024-09-01":   "2024-09-01 00:00:00",
		"2024-9-1":     "2024-09-01 00:00:00",
		"2024-09- 7":   "2024-09-07 00:00:00",
		"٢٠٢٤-09-2٣":   "2024-09-23 00:00:00",
		"2024-02-29":   "2024-02-29 00:00:00",
		"0001-01-01":   "0001-01-01 00:00:00",
		"2023-02-29":   "ValueError: day is out of range for month",
		"2024-09-31":   "ValueError: day is out of range for month",
		"2024-01-39":   "ValueError: unconverted data remains: 9", // day 3 and a rest
		"2024-01-01 x": "ValueError: unconverted data remains:  x",
		"2024-02-30 x": "ValueError: unconverted data remains:  x", // before the range
		"0000-01-01":   "ValueError: year 0 is out of range",
		"2024-01-0":    "ValueError: time data '2024-01-0'" + noDate,
		"2024-13-01":   "ValueError: time data '2024-13-01'" + noDate,
		"2024-01-²":    "ValueError: time data '2024-01-²'" + noDate,
		"24-01-01":     "ValueError: time data '24-01-01'" + noDate,
		"":             "ValueError: time data ''" + noDate,
		"it's":         `ValueError: time data "it's"` + noDate,
		nil:            "TypeError: strptime() argument 1 must be str, not None",
		int64(5):       "TypeError: strptime() argument 1 must be str, not int",
		new(big.Int):   "TypeError: strptime() argument 1 must be str, not int",
		NewDict():      "TypeError: strptime() argument 1 must be str, not dict",
	} {
		checkTime(t, ParseDate, text, want)
	}
	for text, want := range map[Value]string{
		"2024-09-02 05:40:15":        "2024-09-02 05:40:15",
		"2024-09-02 \t5:4:7":         "2024-09-02 05:04:07",
		"2024-09-0205:40:15":         "ValueError: time data '2024-09-0205:40:15'" + noTime,
		"2024-09-02 24:40:15":        "ValueError: time data '2024-09-02 24:40:15'" + noTime,
		"2024-09-02":                 "ValueError: time data '2024-09-02'" + noTime,
		"2024-09-02 05:40:61":        "ValueError: second must be in 0..59",
		"2024-09-02 05:40:75":        "ValueError: unconverted data remains: 5", // second 7 and a rest
		"2024-05-01 22:14:05.858817": "ValueError: unconverted data remains: .858817",
		"2024-09-31 05:40:60":        "ValueError: day is out of range for month",
	} {
		checkTime(t, ParseDateTime, text, want)
	}
}

func checkTime(t *testing.T, read func(Value) (time.Time, error), text Value, want string) {
	t.Helper()
	at, err := read(text)
	got := at.Format(time.DateTime)
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("%v: got %q, want %q", text, got, want)
	}
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

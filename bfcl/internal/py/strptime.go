package py

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// ParseDate is datetime.strptime(text, "%Y-%m-%d"): four digits for the year, one or two for month
// and day. The result is midnight UTC. The error is Python's TypeError or ValueError.
func ParseDate(text Value) (time.Time, error) { return strptime(text, "%Y-%m-%d", dateOnly()) }

// ParseDateTime is datetime.strptime(text, "%Y-%m-%d %H:%M:%S"), in UTC, with the errors of
// ParseDate.
func ParseDateTime(text Value) (time.Time, error) {
	return strptime(text, "%Y-%m-%d %H:%M:%S", dateTime())
}

// The regular expressions that Python's _strptime compiles for the two layouts. \p{Nd} is Python's
// \d, and the class before the hour its \s.
const (
	datePattern = `^(\p{Nd}{4})-(1[0-2]|0[1-9]|[1-9])-(3[0-1]|[1-2]\p{Nd}|0[1-9]|[1-9]| [1-9])`
	timePattern = `[\s\v\x1c-\x1f\x{85}\p{Z}]+(2[0-3]|[0-1]\p{Nd}|\p{Nd}):([0-5]\p{Nd}|\p{Nd}):` +
		`(6[0-1]|[0-5]\p{Nd}|\p{Nd})`
)

// The patterns are compiled on first use, because otherwise every command of rcgrpo would compile them at its start.
var (
	dateOnly = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(datePattern) })
	dateTime = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(datePattern + timePattern) })
)

func strptime(text Value, layout string, pattern *regexp.Regexp) (time.Time, error) {
	s, ok := text.(string)
	if !ok {
		kind := TypeName(text)
		if text == nil {
			kind = "None" // the name in the message of CPython's argument parser
		}
		return time.Time{}, Raise("TypeError", "strptime() argument 1 must be str, not %s", kind)
	}
	var number [6]int // year to second
	match := pattern.FindStringSubmatch(strings.Map(hideNewerDigit, s))
	for i := 1; i < len(match); i++ {
		digits, _ := asciiDigits(Strip(match[i]))
		number[i-1], _ = strconv.Atoi(digits)
	}
	year, month, day, second := number[0], time.Month(number[1]), number[2], number[5]
	switch {
	case match == nil:
		return time.Time{}, Raise("ValueError", "time data %s does not match format '%s'", Repr(s), layout)
	case len(match[0]) < len(s):
		return time.Time{}, Raise("ValueError", "unconverted data remains: %s", s[len(match[0]):])
	case year == 0:
		return time.Time{}, Raise("ValueError", "year 0 is out of range")
	}
	t := time.Date(year, month, day, number[3], number[4], min(second, 59), 0, time.UTC)
	if t.Day() != day {
		return time.Time{}, Raise("ValueError", "day is out of range for month")
	}
	if second > 59 { // leap seconds match the layout, but datetime rejects them
		return time.Time{}, Raise("ValueError", "second must be in 0..59")
	}
	return t, nil
}

// hideNewerDigit replaces digits that Python 3.11 does not know, all of four bytes, by a rune of the
// same width that is no digit.
func hideNewerDigit(r rune) rune {
	if unicode.IsDigit(r) && !Decimal(r) {
		return unicode.MaxRune
	}
	return r
}

package py

import (
	"strings"
	"time"
	"unicode/utf8"
)

// ParseDate is datetime.strptime(text, "%Y-%m-%d"): four digits for the year, one or two for month
// and day. The result is midnight UTC. The error is Python's TypeError or ValueError.
func ParseDate(text Value) (time.Time, error) { return strptime(text, "%Y-%m-%d") }

// ParseDateTime is datetime.strptime(text, "%Y-%m-%d %H:%M:%S"), in UTC, with the errors of
// ParseDate.
func ParseDateTime(text Value) (time.Time, error) { return strptime(text, "%Y-%m-%d %H:%M:%S") }

// strptime reads text by one of the two layouts above. Python compiles a layout into a regular
// expression whose fields cannot backtrack (a separator follows each), so reading from left to
// right is equivalent.
func strptime(text Value, layout string) (time.Time, error) {
	s, ok := text.(string)
	if !ok {
		kind := TypeName(text)
		if text == nil {
			kind = "None" // the name in the message of CPython's argument parser
		}
		return time.Time{}, Raise("TypeError", "strptime() argument 1 must be str, not %s", kind)
	}
	f := dateFields{rest: s, ok: true}
	year := f.year()
	f.separator('-')
	month := f.pair("1[0-2]", "0[1-9]", "[1-9]")
	f.separator('-')
	day := f.pair("3[0-1]", "[1-2]d", "0[1-9]", "[1-9]", " [1-9]")
	var hour, minute, second int
	if len(layout) > len("%Y-%m-%d") {
		f.blanks()
		hour = f.pair("2[0-3]", "[0-1]d", "d")
		f.separator(':')
		minute = f.pair("[0-5]d", "d")
		f.separator(':')
		second = f.pair("6[0-1]", "[0-5]d", "d")
	}
	switch {
	case !f.ok:
		return time.Time{}, Raise("ValueError", "time data %s does not match format '%s'", Repr(s), layout)
	case f.rest != "":
		return time.Time{}, Raise("ValueError", "unconverted data remains: %s", f.rest)
	case year == 0:
		return time.Time{}, Raise("ValueError", "year 0 is out of range")
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	if second > 59 {
		t = time.Date(year, time.Month(month), day, hour, minute, 59, 0, time.UTC)
	}
	if t.Day() != day {
		return time.Time{}, Raise("ValueError", "day is out of range for month")
	}
	if second > 59 { // leap seconds match the layout, but datetime rejects them
		return time.Time{}, Raise("ValueError", "second must be in 0..59")
	}
	return t, nil
}

// dateFields reads the fields of a date from the left. After a mismatch, ok is false and the
// methods read nothing.
type dateFields struct {
	rest string
	ok   bool
}

func (f *dateFields) year() (year int) {
	for i := 0; i < 4 && f.ok; i++ {
		digit, size := decimalDigit(f.rest)
		f.ok = size > 0
		f.rest = f.rest[size:]
		year = 10*year + digit
	}
	return year
}

func (f *dateFields) separator(c byte) {
	if f.ok = f.ok && f.rest != "" && f.rest[0] == c; f.ok {
		f.rest = f.rest[1:]
	}
}

// blanks reads one or more white-space characters.
func (f *dateFields) blanks() {
	rest := strings.TrimLeftFunc(f.rest, Space)
	f.ok = f.ok && len(rest) < len(f.rest)
	f.rest = rest
}

// pair reads the first alternative that matches: a sequence of "[a-b]" (ASCII), "d" (any decimal
// digit) and literal characters. The result is the number that the digits form.
func (f *dateFields) pair(alternatives ...string) int {
	if !f.ok {
		return 0
	}
	for _, pattern := range alternatives {
		if number, size, ok := matchDigits(f.rest, pattern); ok {
			f.rest = f.rest[size:]
			return number
		}
	}
	f.ok = false
	return 0
}

func matchDigits(s, pattern string) (number, size int, ok bool) {
	for pattern != "" {
		if size == len(s) {
			return 0, 0, false
		}
		c, width := s[size], 1
		switch pattern[0] {
		case '[':
			if c < pattern[1] || c > pattern[3] {
				return 0, 0, false
			}
			number = 10*number + int(c-'0')
			pattern = pattern[5:]
		case 'd':
			digit, n := decimalDigit(s[size:])
			if n == 0 {
				return 0, 0, false
			}
			number, width = 10*number+digit, n
			pattern = pattern[1:]
		default:
			if c != pattern[0] {
				return 0, 0, false
			}
			if c != ' ' {
				number = 10*number + int(c-'0')
			}
			pattern = pattern[1:]
		}
		size += width
	}
	return number, size, true
}

// decimalDigit returns the value of the decimal digit, of any script, at the start of s, and its
// width in bytes, or 0 if there is none.
func decimalDigit(s string) (digit, size int) {
	r, size := utf8.DecodeRuneInString(s)
	if !Decimal(r) {
		return 0, 0
	}
	return DigitValue(r), size
}

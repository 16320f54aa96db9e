package lang

import "fmt"

// ParseBytes parses a size such as "200GB" or "1.5 GiB".
func ParseBytes(text string) (int64, error) {
	n, ok := parseBytes(text)
	if !ok {
		return 0, fmt.Errorf("%q is not a size; write a number and a unit, such as 200GB", text)
	}
	return n, nil
}

// BytesText formats a size with three digits and a decimal unit: "1.5 MB".
func BytesText(n int64) string {
	size, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	for len(units) > 1 && size >= 1000 {
		size, units = size/1000, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %s", size, units[0])
}

package stat

import (
	"testing"
	"time"
)

// A file that is rewritten within one clock tick may keep its stamp, so a stamp of the last tick proves nothing.
func TestStampsOfTheLastTickAreNotTrusted(t *testing.T) {
	second := int64(time.Second)
	for name, tc := range map[string]struct {
		s    Stamp
		now  int64
		want bool
	}{
		"changed before this tick": {Stamp{Mtime: 5, Ctime: 7}, 8, false},
		"changed in this tick":     {Stamp{Mtime: 5, Ctime: 7}, 7, true},
		"mtime in this tick":       {Stamp{Mtime: 7, Ctime: 5}, 7, true},
		"modified in the future":   {Stamp{Mtime: 9, Ctime: 5}, 7, true},
		"whole seconds, one ago":   {Stamp{Mtime: 4 * second, Ctime: 4 * second}, 5 * second, true},
		"whole seconds, three ago": {Stamp{Mtime: 4 * second, Ctime: 4 * second}, 7 * second, false},
	} {
		if got := tc.s.TooRecent(tc.now); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

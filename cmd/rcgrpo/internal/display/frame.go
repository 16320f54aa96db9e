package display

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

// redraw writes the permanent lines above the new live lines. It uses one write so that the screen does not flicker.
func (d *Display) redraw(now time.Time) {
	var b strings.Builder
	width, height := 0, 0
	if d.o.Terminal {
		width, height = d.o.Size()
		b.WriteString(erase(d.drawn, width))
	}
	b.Write(d.lines.Bytes())
	d.lines.Reset()
	d.drawn = nil
	if d.o.Terminal && len(d.running) > 0 {
		d.drawn = append(frame(d.running, now, width, height-3), cut(d.status(now), width-1))
		b.WriteString(strings.Map(Printable, strings.Join(d.drawn, "\n")) + "\n")
	}
	if b.Len() > 0 {
		io.WriteString(d.out, b.String())
	}
	d.drawnAt, d.changed = now, false
}

// erase returns the sequence that removes live lines. A screen that became narrower has wrapped them.
func erase(lines []string, width int) string {
	if len(lines) == 0 {
		return ""
	}
	rows := 0
	for _, line := range lines {
		rows += max(1, (utf8.RuneCountInString(line)+width-1)/width)
	}
	return fmt.Sprintf("\x1b[%dF\x1b[J", rows)
}

// minNameWidth is the width that an address keeps when the columns need space.
const minNameWidth = 20

// frame returns a line per running stage: address, aligned columns, and the values that fit. It returns at most rows
// lines, each shorter than width. A long address is shortened first.
func frame(running []*stage, now time.Time, width, rows int) []string {
	rows = max(1, rows)
	shown := running
	if len(running) > rows {
		shown = running[:rows-1]
	}
	type line struct {
		name    string
		columns [4]string
		values  []string
	}
	all := make([]line, len(shown))
	var widths [4]int
	name := 0
	for i, s := range shown {
		all[i].name = lang.ShortAddress(s.address)
		all[i].columns, all[i].values = s.Columns(now)
		name = max(name, utf8.RuneCountInString(all[i].name))
		for c, text := range all[i].columns {
			widths[c] = max(widths[c], utf8.RuneCountInString(text))
		}
	}
	room := width - 1 - 2
	for _, w := range widths {
		if w > 0 {
			room -= 2 + w
		}
	}
	if room < min(name, minNameWidth) && widths[2] > 0 { // drop the rate: the time left follows from it
		room += 2 + widths[2]
		widths[2] = 0
	}
	name = min(name, max(room, minNameWidth))
	var lines []string
	for _, l := range all {
		text := fmt.Sprintf("  %-*s", name, cutMiddle(l.name, name))
		for c, w := range widths {
			if c != 1 {
				w = -w // aligned to the left; percent to the right
			}
			if w != 0 {
				text += fmt.Sprintf("  %*s", w, l.columns[c])
			}
		}
		for _, value := range l.values { // never cut
			if utf8.RuneCountInString(text)+2+utf8.RuneCountInString(value) >= width {
				break
			}
			text += "  " + value
		}
		lines = append(lines, cut(strings.TrimRight(text, " "), width-1))
	}
	if more := len(running) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("  … and %d more", more))
	}
	return lines
}

// status returns the line below the live lines: counts and the run time.
func (d *Display) status(now time.Time) string {
	parts := []string{fmt.Sprintf("%d running", len(d.running))}
	if n := d.open - len(d.running); n > 0 {
		parts = append(parts, fmt.Sprintf("%d to go", n))
	}
	kinds := []runs.EventKind{
		runs.EventDone, runs.EventFetched, runs.EventKept, runs.EventFailed, runs.EventSkipped,
	}
	for _, kind := range kinds {
		if n := d.done[string(kind)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind))
		}
	}
	parts = append(parts, runs.DurationText(now.Sub(d.started).Seconds()))
	if left := d.estimate.rest(now); left > 0 {
		parts = append(parts, "about "+roughly(left)+" left")
	}
	return strings.Join(parts, " · ")
}

func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width-1)]) + "…"
}

// cutMiddle shortens the middle of a text that is too long: an address keeps its kind and seed.
func cutMiddle(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width || width < 3 {
		return cut(text, width)
	}
	tail := (width - 1) / 2
	return string(runes[:width-1-tail]) + "…" + string(runes[len(runes)-tail:])
}

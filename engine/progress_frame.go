package engine

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// redraw writes the lines that stay above the live lines, and these anew, in one write so that the screen does not flicker.
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
		b.WriteString(strings.Join(d.drawn, "\n") + "\n")
	}
	if b.Len() > 0 {
		io.WriteString(d.out, b.String())
	}
	d.drawnAt, d.changed = now, false
}

// erase takes live lines off a screen that may be narrower than when they were drawn: it wraps them then.
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

// leastName is what is left of an address when the columns beside it need the room.
const leastName = 20

// frame lays out a line per running stage, at most rows of them, each shorter than width: address, columns, and as many of the
// values as there is room for. The columns stand below each other; an address gives way to them.
func frame(running []*liveStage, now time.Time, width, rows int) []string {
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
		all[i].name = ShortAddress(s.address)
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
	if room < min(name, leastName) && widths[2] > 0 { // the rate goes first: the time left says it too
		room += 2 + widths[2]
		widths[2] = 0
	}
	name = min(name, max(room, leastName))
	var lines []string
	for _, l := range all {
		text := fmt.Sprintf("  %-*s", name, cutMiddle(l.name, name))
		for c, w := range widths {
			switch {
			case w == 0:
			case c == 1: // percent, to the right
				text += fmt.Sprintf("  %*s", w, l.columns[c])
			default:
				text += fmt.Sprintf("  %-*s", w, l.columns[c])
			}
		}
		for _, value := range l.values { // as long as they fit whole
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

// status is the line for everything that has no line of its own.
func (d *Display) status(now time.Time) string {
	parts := []string{fmt.Sprintf("%d running", len(d.running))}
	if n := d.left - len(d.running); n > 0 {
		parts = append(parts, fmt.Sprintf("%d to go", n))
	}
	for _, kind := range []EventKind{EventDone, EventKept, EventFailed, EventSkipped} {
		if n := d.done[string(kind)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind))
		}
	}
	return strings.Join(append(parts, durationText(now.Sub(d.started).Seconds())), " · ")
}

// cut ends a text that is too long with an ellipsis.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width-1)]) + "…"
}

// cutMiddle keeps both ends of a text that is too long: of an address, the kind and the seed.
func cutMiddle(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width || width < 3 {
		return cut(text, width)
	}
	tail := (width - 1) / 2
	return string(runes[:width-1-tail]) + "…" + string(runes[len(runes)-tail:])
}

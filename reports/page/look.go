package page

import (
	"fmt"
	"slices"
)

// Look is how an arm is drawn on the whole page: a colour and a marker, which no other arm has together.
type Look struct {
	Known  bool // false for a row or a series without arm
	Colour int  // index in lightColours and darkColours
	Marker int  // index in markers
}

// Colours on light and on dark background, in families of three shades of one hue: a family for each initialisation,
// the shade for the method, and greys for baselines. The hues differ for readers with common colour deficiencies, and
// every colour has a contrast of 3 with its background.
var (
	lightColours = []string{
		"#3d8fdb", "#0b4f9e", "#4a5fd0", // blue
		"#e0721c", "#9c3d00", "#c2503f", // orange
		"#1f9d74", "#04593f", "#5b8f1e", // green
		"#b565c9", "#6b2a80", "#c2478f", // purple
		"#a3841a", "#5e4a00", "#8a6f4a", // gold
		"#858b93", "#5d646c", "#33393f", // baselines
	}
	darkColours = []string{
		"#3f8ad8", "#9ccbff", "#8797ff",
		"#d9752c", "#ffc08f", "#f08878",
		"#22996f", "#8fe6c4", "#9fc95a",
		"#a967bd", "#e3b5f2", "#ee8ac2",
		"#a68924", "#f0da85", "#c9ab80",
		"#858c95", "#b4bac1", "#e3e6ea",
	}
)

const (
	Shades    = 3 // colours of a family
	Baselines = 5 // index of the family of greys
)

// Markers are the glyphs of the markers in text. The style and the script draw the same shapes.
var Markers = []string{"●", "◆", "■", "▲"}

// IndexOrAppend returns the index of a text in a list and appends it if it is new.
func IndexOrAppend(all *[]string, text string) int {
	if i := slices.Index(*all, text); i >= 0 {
		return i
	}
	*all = append(*all, text)
	return len(*all) - 1
}

// class returns the CSS classes of the look; "" without an arm.
func (l Look) class() string {
	if !l.Known {
		return ""
	}
	return fmt.Sprintf("c%d m%d", l.Colour, l.Marker)
}

// glyph returns the marker before a name in text; "" without an arm.
func (l Look) glyph() string {
	if !l.Known {
		return ""
	}
	return Markers[l.Marker] + " "
}

// DropSingleGroup removes the groups of arms from a table in which all rows have the same one.
func (t *Table) DropSingleGroup() {
	if slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Arm == NoArm || r.Group != t.Rows[0].Group }) {
		return
	}
	for i := range t.Rows {
		t.Rows[i].Group = ""
	}
}

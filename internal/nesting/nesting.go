// Package nesting measures JSON before a decoder reads it: decoders call themselves for each level, the type of a
// decoded value contains the types of all levels below it, and each value takes memory, however short it is.
package nesting

// JSON returns the depth of the deepest array or object in a text, and the number of commas outside of strings, whether
// the text is valid JSON or not.
func JSON[T string | []byte](text T) (deepest, commas int) {
	level, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			level++
			deepest = max(deepest, level)
		case c == ']' || c == '}':
			level--
		case c == ',':
			commas++
		}
	}
	return deepest, commas
}

// Package lang reads the files of an experiment. Start with Load, which turns a file or folder into an Experiment: a
// graph of Nodes with decoded, checked and linked settings. A Kind defines a type of stage, a Stage contains the
// settings of one instance, and a Site the settings of this machine. The package opens no store and runs nothing:
// package plan compares an Experiment with a store, package engine runs it. docs/language.md describes the language.
//
// # Settings structs
//
// Kind.New returns a pointer to a struct whose fields are the kind's settings. The tag `hcl` contains the name and,
// after a comma, one of: nothing (a required setting), optional, block, label or ranges. A field with the tag
// `hcl:",ranges"` is a map[string]hcl.Range that the decoder fills: it contains the range of each setting by name, and
// the range of the struct's block for "" and for settings that the files do not set. Further tags:
//
//	port     required artifact type of a reference, alternatives separated by |: `port:"checkpoint|dataset"`
//	unit     unit of the value, for `rcgrpo kinds` and docs/language.md
//	choices  permitted strings, separated by |
//	preset   "true": the value selects defaults of other settings (interface Preset)
//	key      "-" excludes the setting from the key: it must not change the bytes of any artifact
//
// The comment of a field is its documentation for users: one phrase, which `go generate ./engine/lang` copies to
// settings.txt.
//
// A field may be a bool, string, integer, float, time.Duration, or a pointer to one of these (nil if absent); a slice
// or a map with string keys of these; artifact.Ref, artifact.File, artifact.Data (either of the two), and slices
// and maps of the three; json.RawMessage for any plain value; or a nested struct for a block.
// A block with defaults is a pointer: if the block is absent, the value from New remains; if it is present, attributes
// that it does not set keep their defaults. Repeated blocks are slices of structs. Fields of embedded structs are
// settings of the outer struct. A Ref has no seed, unless the kind reads all seeds.
package lang

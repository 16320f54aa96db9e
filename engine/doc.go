// Package engine reads experiments, plans them and runs them. It knows files, keys, graphs and artifacts; what a
// stage learns or measures is the affair of its Kind.
//
// Start with Load, which turns a file or folder into an Experiment: a graph of Nodes, decoded, checked and linked.
// NewPlan compares it with a store (package engine/artifact) and says for every node whether it would run and
// why; Plan.Run does it. The language is described in docs/language.md.
//
// # Settings structs
//
// Kind.New returns a pointer to a struct whose fields are the kind's settings. The tag `hcl` gives the name and, after
// a comma, one of: nothing (a setting that must be given), optional, block, label, attr_range (the place of the
// setting named) or def_range (the place of the block itself). Further tags:
//
//	port     artifact type a reference must have, alternatives separated by |: `port:"checkpoint|dataset"`
//	doc      one phrase for `rcgrpo kinds` and docs/language.md
//	unit     unit of the value, for the same
//	choices  permitted strings, separated by |
//	preset   "true": the value names defaults of other settings, which the stage puts in (interface Preset)
//	key      "-" keeps the setting out of the key: it must not change the bytes of any artifact
//
// Fields may be bool, string, integers, floats, time.Duration, pointers to these (nil when absent), slices and maps
// with string keys of these, any, artifact.Ref, artifact.File, artifact.Data (either of them), slices and maps of all three,
// and nested structs for blocks. A field whose type is Canonical says itself what stands in the key.
// A block with defaults is a pointer: an absent block keeps the value New put there, a present one keeps the
// defaults of the attributes it does not name. Repeated blocks are slices of structs. Embedded structs lend their fields.
//
// A stage whose settings may have no effect in combination is an EffectChecker: writing such a setting is an error.
//
// A Ref in a settings struct has no seed, unless the kind gathers; Job.Open resolves it for the node that runs.
package engine

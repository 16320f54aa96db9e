package artifact

// Ref names one port of one node. Settings contain a Ref where the file refers to another stage
// (`policy = stage.sft.warm.checkpoint`); the Refs in a decoded value are the edges of the graph.
type Ref struct {
	Kind string // kind of the stage, "sft"
	Name string // name of the stage, "warm"
	Key  string // for_each key; "" without for_each
	Port string // "checkpoint"
	Type string // artifact type of the port, "checkpoint"
	Seed *int64 // nil for a node of all seeds

	Module string `json:",omitempty"` // address of the stage's module, "module.base"; "" for none
}

// File is a file or folder that a setting names with file() or dir(). Keys contain the digest only, so data
// and experiments can move.
type File struct {
	Path   string // absolute
	Digest string // of the content
	Dir    bool   // named with dir()

	Left []string // names of files and folders in it that do not belong to it
}

// Data is a setting that names either a file or folder, or a port of another stage.
type Data struct {
	File File // zero when Ref is set
	Ref  Ref  // zero when File is set
}

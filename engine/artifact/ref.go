package artifact

// Ref names one port of one node. Settings structs hold Refs where the file refers to another stage
// (`policy = stage.sft.warm.checkpoint`); the Refs found in a decoded value are the edges of the graph.
type Ref struct {
	Kind string // kind of the stage it points to, "sft"
	Name string // its name, "warm"
	Key  string // its for_each key; "" without for_each
	Port string // "checkpoint"
	Type string // artifact type of the port, "checkpoint"
	Seed *int64 // which seed's node; nil where seeds do not multiply
}

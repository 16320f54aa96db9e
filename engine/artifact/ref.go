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
}

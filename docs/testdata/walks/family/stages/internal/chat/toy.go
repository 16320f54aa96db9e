package chat

// toy is a family with the layout of Qwen2.5 whose replies end by one token only.
var toy = func() Layout {
	l := qwen
	l.Name, l.Decoder, l.stops = "toy", "toy", []string{"<|im_end|>"}
	return l
}()

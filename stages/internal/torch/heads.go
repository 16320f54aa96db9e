package torch

// FlashesHeads reports whether flash attention supports heads of width d. It needs no libtorch.
func FlashesHeads(d int64) bool { return d%8 == 0 && d <= 256 }

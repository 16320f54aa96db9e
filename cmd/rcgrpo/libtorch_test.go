//go:build libtorch

package main

func init() { scripts = "testdata/tensors" }

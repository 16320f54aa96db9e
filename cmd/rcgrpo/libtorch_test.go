//go:build libtorch

package main

func init() { withTensors = true }

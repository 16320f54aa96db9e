// Package gguf reads model files of llama.cpp and writes them as Hugging Face folders in float32. Whatever it cannot
// read exactly is refused with the reason. Files may come from anyone: every length is checked before memory is
// allocated for it, and weights are read in pieces.
//
//	File       an open file whose metadata and tensor table were checked; start with Open
//	Config     the shape of the decoder, with Check and Rows for its weights
//	Tokenizer  tokenizer.json
//	WriteText, WriteWeights
//	           the files of a model folder
//
// Neighbours: lm (shapes, safetensors), token (tokenizers); checkpoint decides whether a model can be used.
package gguf

// Package token implements byte-level BPE: text to token ids and back, as Hugging Face tokenizers does it for the
// families of Qwen2.5, Llama 3, GPT-2 and SmolLM2, and the training of small vocabularies of the same form.
//
// The noun is Tokenizer: [Train] makes one from texts, [Load] and [Parse] read tokenizer.json, [Tokenizer.JSON]
// writes it. Neighbour: stages/internal/chat, which defines the meaning of special tokens.
//
// Why not a library: sugarme/tokenizer v0.3.0 panics on the tokenizer.json of both families (it compiles their
// pre-tokenizer pattern, which has a look-ahead, with package regexp), and daulet/tokenizers binds the Rust
// library through cgo, which the binary without cgo cannot use.
//
// Departures from the Rust library: invalid UTF-8 is preserved (there a text is always valid), a file with
// unsupported features (another pre-tokenizer pattern, byte fallback, dropout, stripping added tokens) is
// refused, and letters and numbers are those of Go's Unicode tables (15.0; the library has 17.0).
package token

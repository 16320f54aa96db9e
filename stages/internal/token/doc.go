// Package token is byte-level BPE: text to token ids and back, the way Hugging Face tokenizers does
// it for the Qwen2.5 and Llama 3 families, and the training of small vocabularies of the same form.
//
// The noun is Tokenizer: [Train] makes one from texts, [Load] and [Parse] read tokenizer.json,
// [Tokenizer.JSON] writes it. [Stream] decodes ids one by one. Neighbour: stages/internal/chat,
// which knows what the special tokens mean.
//
// Why it is our own: of the libraries in Go, sugarme/tokenizer v0.3.0 panics on both families'
// tokenizer.json (it compiles their pre-tokenizer pattern, which has a look-ahead, with package
// regexp), and daulet/tokenizers binds the Rust library through cgo, which the binary without cgo
// cannot use.
//
// Departures from the Rust library, all on input it was not made for: bytes that are no valid UTF-8
// are kept as they are (there a text is always valid), and a file that asks for something this
// package does not do (another pre-tokenizer pattern, byte fallback, dropout, stripping added
// tokens) is refused with a sentence, not approximated.
package token

package gguf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pre is what a value of tokenizer.ggml.pre means.
type pre struct {
	normalizer   any
	tokenizer    any // pre_tokenizer
	ignoreMerges bool
}

type object = map[string]any

func byteLevel(regex bool) object {
	return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex}
}

func sequence(steps ...any) object { return object{"type": "Sequence", "pretokenizers": steps} }

// splitBy is the pre-tokenizer that cuts by a pattern, in which numbers have up to as many digits as the argument says.
func splitBy(digits string) object {
	pattern := `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + digits +
		`| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	return sequence(object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false},
		byteLevel(false))
}

var pres = map[string]pre{
	"qwen2":     {normalizer: object{"type": "NFC"}, tokenizer: splitBy("")},
	"llama-bpe": {tokenizer: splitBy("{1,3}"), ignoreMerges: true},
	"smollm":    {tokenizer: sequence(object{"type": "Digits", "individual_digits": true}, byteLevel(true))},
	"gpt-2":     {tokenizer: byteLevel(true)},
}

// Types of tokens.
const (
	tokenNormal  = 1
	tokenControl = 3
	tokenAdded   = 4
	tokenUnused  = 5
)

// Tokenizer returns the text of a tokenizer.json. Control tokens become special, user-defined ones added tokens, and
// unused ones, which pad the embedding, are left out.
func (f *File) Tokenizer() ([]byte, error) {
	text, err := f.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return text, nil
}

func (f *File) tokenizer() ([]byte, error) {
	model, err := value(f, "tokenizer.ggml.model", "")
	if err != nil || model != "gpt2" {
		return nil, fmt.Errorf("tokenizer.ggml.model is %.64q, which is not supported; gpt2, a byte-level BPE, is", model)
	}
	name, err := value(f, "tokenizer.ggml.pre", "")
	p, known := pres[name]
	if err != nil || !known {
		return nil, fmt.Errorf("tokenizer.ggml.pre is %.64q, which is not supported; supported are %s", name,
			strings.Join(slices.Sorted(maps.Keys(pres)), ", "))
	}
	if spaced, err := value(f, "tokenizer.ggml.add_space_prefix", false); err != nil || spaced {
		return nil, fmt.Errorf("tokenizer.ggml.add_space_prefix is not false, so a text would not be that of its tokens")
	}
	tokens, err := value(f, "tokenizer.ggml.tokens", []string(nil))
	if err != nil {
		return nil, err
	}
	types, err := value(f, "tokenizer.ggml.token_type", []int32(nil))
	if err != nil {
		return nil, err
	}
	merges, err := value(f, "tokenizer.ggml.merges", []string(nil))
	if err != nil {
		return nil, err
	}
	embed := f.tensors[embedTensor]
	if len(tokens) != len(types) || len(embed.shape) == 0 || len(tokens) != embed.shape[0] {
		return nil, fmt.Errorf("it has %d tokens, %d types of tokens and the embedding %v; one number is needed",
			len(tokens), len(types), embed.shape)
	}
	last := len(types) - 1 // normal token
	for last >= 0 && types[last] != tokenNormal {
		last--
	}
	vocab, added := map[string]int{}, []object{}
	for id, token := range tokens {
		switch types[id] {
		case tokenNormal:
		case tokenControl, tokenAdded:
			added = append(added, object{"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
				"normalized": false, "special": types[id] == tokenControl})
			if id > last {
				continue // the library gives the tokens after the vocabulary the ids that follow it
			}
		case tokenUnused:
			continue
		default:
			return nil, fmt.Errorf("token %d, %.64q, has the type %d; 1 (normal), 3 (control), 4 (user-defined) and 5 "+
				"(unused) are supported", id, token, types[id])
		}
		if other, twice := vocab[token]; twice {
			return nil, fmt.Errorf("the tokens %d and %d are both %.64q", other, id, token)
		}
		vocab[token] = id
	}
	return json.Marshal(object{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer": p.normalizer, "pre_tokenizer": p.tokenizer, "post_processor": nil,
		"decoder": byteLevel(true), "model": object{"type": "BPE", "dropout": nil, "unk_token": nil,
			"continuing_subword_prefix": nil, "end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false,
			"ignore_merges": p.ignoreMerges, "vocab": vocab, "merges": merges}})
}

// Template returns the chat template, or "".
func (f *File) Template() (string, error) { return value(f, "tokenizer.chat_template", "") }

// settings returns the texts of tokenizer_config.json, with the chat template, and of generation_config.json.
func (f *File) settings() (tokenizer, generation []byte, err error) {
	tokens, err := value(f, "tokenizer.ggml.tokens", []string(nil))
	if err != nil {
		return nil, nil, err
	}
	config := object{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	ids := object{}
	for _, role := range []struct{ theirs, ours string }{{"bos", "bos"}, {"eos", "eos"}, {"padding", "pad"}} {
		key := "tokenizer.ggml." + role.theirs + "_token_id"
		id, err := value(f, key, int64(-1))
		if _, present := f.keys[key]; !present {
			continue
		}
		if err != nil || id < 0 || id >= int64(len(tokens)) {
			return nil, nil, fmt.Errorf("%s: %s is %v, and there are %d tokens", f.path, key, f.keys[key], len(tokens))
		}
		config[role.ours+"_token"], ids[role.ours+"_token_id"] = tokens[id], id
	}
	template, err := f.Template()
	if err != nil {
		return nil, nil, err
	}
	if template != "" {
		config["chat_template"] = template
	}
	if tokenizer, err = json.MarshalIndent(config, "", "  "); err != nil {
		return nil, nil, err
	}
	generation, err = json.MarshalIndent(ids, "", "  ")
	return tokenizer, generation, err
}

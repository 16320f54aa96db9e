package lang

import (
	"encoding/base64"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// Remote is the remote block of the site file: a store that machines share. No key depends on it.
type Remote struct {
	Name     string
	URL      string            // absolute path of a folder
	Push     string            // "yes": after each commit; "ask": only `store push`; "no"
	Pull     bool              // runs fetch results
	Sign     string            // name of the private key; "": manifests are not signed
	Trust    map[string][]byte // public keys (ed25519, 32 bytes) by name; empty: every writer is trusted
	Grace    time.Duration     // between the mark of an unnamed object and its deletion
	Parallel int               // transfers at once
	Pack     int64             // bytes; smaller files of an output are packed
	Deadline time.Duration     // of a transfer without progress
}

type remoteBlock struct {
	Name     string        `hcl:"name,label"`
	URL      string        `hcl:"url" doc:"a folder, for example on a network file system"`
	Push     string        `hcl:"push,optional" choices:"ask|yes|no" doc:"yes: after each commit; ask: only store push"`
	Pull     string        `hcl:"pull,optional" choices:"yes|no" doc:"whether runs fetch results"`
	Sign     string        `hcl:"sign,optional" doc:"private key that signs pushed results (store key NAME)"`
	Trust    []string      `hcl:"trust,optional" doc:"NAME:BASE64, keys whose results are accepted; empty: all writers"`
	Grace    time.Duration `hcl:"grace,optional" doc:"time between the two passes of store gc --remote"`
	Parallel int           `hcl:"parallel,optional" doc:"transfers at once"`
	Pack     byteSize      `hcl:"pack,optional" doc:"files of an output below this size share an object"`
	Deadline time.Duration `hcl:"deadline,optional" doc:"limit of a transfer without progress"`

	At map[string]hcl.Range `hcl:",ranges"`
}

func defaultRemote() *remoteBlock {
	return &remoteBlock{Push: "ask", Pull: "yes", Grace: 24 * time.Hour, Parallel: 16, Pack: 8e6,
		Deadline: time.Minute}
}

// PlainName reports whether a remote or a key may have a name, which is part of file names.
func PlainName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return name != "" && len(name) <= 64 && strings.Trim(name, letters+"._-") == "" && strings.Trim(name[:1], letters) == ""
}

// siteRemote returns the remote of a block, or nil without one. base is the folder of the site file.
func (l *loader) siteRemote(b *remoteBlock, base string) *Remote {
	if b.Name == "" || l.diags.HasErrors() { // no block, or a mistake that is already reported
		return nil
	}
	r := &Remote{Name: b.Name, URL: b.URL, Push: b.Push, Pull: b.Pull == "yes", Sign: b.Sign, Trust: map[string][]byte{},
		Grace: b.Grace, Parallel: b.Parallel, Pack: int64(b.Pack), Deadline: b.Deadline}
	if !PlainName(b.Name) {
		l.errorf(b.At["name"], "Bad name", "The name of a remote has letters, digits, \".\", \"_\" and \"-\"; got %q.", b.Name)
	}
	if b.Sign != "" && !PlainName(b.Sign) {
		l.errorf(b.At["sign"], "Bad name", "The name of a key has letters, digits, \".\", \"_\" and \"-\"; got %q.", b.Sign)
	}
	for _, entry := range b.Trust {
		name, text, _ := strings.Cut(entry, ":")
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != 32 || !PlainName(name) {
			l.errorf(b.At["trust"], "Bad key", "trust must contain lines such as `store key NAME` prints them, "+
				"NAME:BASE64 of 32 bytes; got %q.", entry)
		}
		r.Trust[name] = key
	}
	for name, bad := range map[string]bool{"grace": b.Grace < time.Minute, "deadline": b.Deadline < time.Second,
		"parallel": b.Parallel < 1 || b.Parallel > 256, "pack": b.Pack < 0 || b.Pack > 64e6} {
		if bad {
			l.errorf(b.At[name], "Bad value", "%s.", remoteLimits[name])
		}
	}
	if strings.Contains(b.URL, "://") {
		l.errorf(b.At["url"], "Unknown storage", "url must be the path of a folder; got %q.", b.URL)
	} else {
		path, err := l.resolve(base, b.URL)
		if err != nil {
			l.errorf(b.At["url"], "No folder", "remote.url: %s.", err)
		}
		r.URL = filepath.Clean(path)
	}
	return r
}

var remoteLimits = map[string]string{
	"grace": "grace must be at least 1m", "deadline": "deadline must be at least 1s",
	"parallel": "parallel must be from 1 to 256", "pack": "pack must be at most 64MB",
}

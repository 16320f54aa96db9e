package remote

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
)

// record is the content of v1/nodes/KEY.json:
//
//	rcgrpo-result 1 SHA256     of all that follows this line
//	pack BYTES
//	sign NAME BASE64           ed25519, any number of lines; see signed
//	                           (empty line)
//	{…}                        the manifest
type record struct {
	manifest   *artifact.Manifest
	pack       int64
	text       []byte            // the manifest's exact bytes
	signatures map[string][]byte // by name of the key
	damaged    bool              // an object is missing or damaged; not stored
}

const recordHead = "rcgrpo-result 1 "

// errNewer reports a record of a later format.
var errNewer = errors.New("a later version of rcgrpo wrote it")

func newRecord(m *artifact.Manifest, pack int64) (*record, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	return &record{manifest: m, pack: pack, text: text, signatures: map[string][]byte{}}, err
}

// signed returns the bytes that a signature covers.
func (r *record) signed() []byte {
	return fmt.Appendf(nil, "%s\npack %d\n\n%s", recordHead, r.pack, r.text)
}

func (r *record) encode() []byte {
	var body bytes.Buffer
	fmt.Fprintf(&body, "pack %d\n", r.pack)
	for name, signature := range r.signatures {
		fmt.Fprintf(&body, "sign %s %s\n", name, base64.StdEncoding.EncodeToString(signature))
	}
	fmt.Fprintf(&body, "\n%s", r.text)
	return fmt.Appendf(nil, "%s%x\n%s", recordHead, sha256.Sum256(body.Bytes()), body.Bytes())
}

// parseRecord reads the record of a key. Any changed byte is an error.
func parseRecord(b []byte, key string) (*record, error) {
	head, body, _ := bytes.Cut(b, []byte("\n"))
	if want := fmt.Sprintf("%s%x", recordHead, sha256.Sum256(body)); string(head) != want {
		if sum, ok := strings.CutPrefix(string(head), "rcgrpo-result 2 "); ok && strings.HasSuffix(want, sum) {
			return nil, errNewer
		}
		return nil, errors.New("the record of the result is damaged")
	}
	lines, text, _ := bytes.Cut(body, []byte("\n\n"))
	r := &record{text: text, signatures: map[string][]byte{}}
	for line := range strings.Lines(string(lines)) {
		words := strings.Fields(line)
		var err error
		switch {
		case len(words) == 2 && words[0] == "pack":
			r.pack, err = strconv.ParseInt(words[1], 10, 64)
		case len(words) == 3 && words[0] == "sign":
			r.signatures[words[1]], err = base64.StdEncoding.DecodeString(words[2])
		default:
			err = fmt.Errorf("unknown line %q", line)
		}
		if err != nil {
			return nil, fmt.Errorf("read the record of the result: %w", err)
		}
	}
	if err := json.Unmarshal(text, &r.manifest); err != nil {
		return nil, fmt.Errorf("read the record of the result: %w", err)
	}
	if r.manifest == nil || r.manifest.Key != key {
		return nil, errors.New("the record of the result has another key")
	}
	return r, nil
}

// trustedBy returns an error unless a key of trust has signed the record. An empty trust accepts every record.
func (r *record) trustedBy(trust map[string][]byte) error {
	if len(trust) == 0 {
		return nil
	}
	for name, key := range trust {
		if ed25519.Verify(ed25519.PublicKey(key), r.signed(), r.signatures[name]) {
			return nil
		}
	}
	return errors.New("no key of `trust` in the site file has signed it")
}

// cutPack is the size at which a pack ends.
const cutPack = 64_000_000

// blob is an object with the bytes of files of an output.
type blob struct {
	name   string
	bytes  int64
	files  []artifact.FileInfo // one after the other
	output artifact.Output
}

// blobs returns the objects of a result.
func (r *record) blobs() (all []blob) {
	for _, output := range r.manifest.Outputs {
		for _, o := range output.Objects() {
			all = append(all, blobs(o, r.pack)...)
		}
	}
	return all
}

// blobs returns the objects of an output. Those without bytes have no object.
func blobs(o artifact.Output, pack int64) (all []blob) {
	packed := blob{output: o}
	n := 0
	end := func() {
		if len(packed.files) > 0 {
			packed.name = fmt.Sprintf("v1/packs/%s.%d.%d", o.Digest, pack, n)
			all = append(all, packed)
			n, packed = n+1, blob{output: o}
		}
	}
	for _, f := range o.Files {
		if f.Bytes >= pack && f.Bytes > 0 {
			all = append(all, blob{fileName(f), f.Bytes, []artifact.FileInfo{f}, o})
			continue
		}
		if packed.bytes+f.Bytes > cutPack {
			end()
		}
		packed.bytes += f.Bytes
		packed.files = append(packed.files, f)
	}
	end()
	return all
}

func nodeName(key string) string { return "v1/nodes/" + key + ".json" }

func fileName(f artifact.FileInfo) string { return "v1/files/" + f.SHA256 }

// keyPath returns the file of a private key: $XDG_CONFIG_HOME/rcgrpo/keys/NAME, default ~/.config.
func keyPath(name string) (string, error) {
	if !lang.PlainName(name) {
		return "", fmt.Errorf("%q is no name of a key: use letters, digits, \".\", \"_\" and \"-\", such as me-1", name)
	}
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "rcgrpo", "keys", name), err
}

// MakeKey returns the line of a key for `trust`, NAME:BASE64. It makes the private key, a file of mode 0600, if there
// is none of that name.
func MakeKey(name string) (line, path string, err error) {
	path, err = keyPath(name)
	if err != nil {
		return "", "", err
	}
	key, err := readKey(name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, key, err = ed25519.GenerateKey(nil); err != nil {
			return "", "", err
		}
		text := base64.StdEncoding.EncodeToString(key.Seed()) + "\n"
		err = errors.Join(disk.MkdirAll(filepath.Dir(path), 0o700), disk.WriteFile(path, []byte(text), 0o600))
	}
	if err != nil {
		return "", "", err
	}
	return name + ":" + base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)), path, nil
}

// readKey reads a private key. A key that other users can read is an error.
func readKey(name string) (ed25519.PrivateKey, error) {
	path, err := keyPath(name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w (`rcgrpo store key %s` makes one)", name, err, name)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("key %s: %s is readable by other users: chmod 600 it", name, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("key %s: %s is no private key", name, path)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

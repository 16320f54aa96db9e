package remote

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
)

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

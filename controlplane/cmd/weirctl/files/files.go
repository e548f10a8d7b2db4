// Package files reads files of bounded length, and replaces files atomically.
package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// BytesMax bounds a file that a person has written.
const BytesMax = 64 << 10

// Read reads a file or stdin. It reads at most one byte more than the bound, so that callers can detect longer files.
func Read(name string, bytesMax int64) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, bytesMax+1))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, bytesMax+1))
}

// Replace replaces a file atomically: a concurrent reader sees the old file or the new file.
func Replace(path string, text []byte, mode os.FileMode) error {
	return ReplaceWith(path, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// ReplaceWith is like Replace for a text of any length.
func ReplaceWith(path string, mode os.FileMode, write func(io.Writer) error) error {
	next, err := os.CreateTemp(filepath.Dir(path), ".weirctl-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(next.Name()) }() // after a success the file no longer exists
	err = errors.Join(write(next), next.Chmod(mode), next.Close())
	if err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}

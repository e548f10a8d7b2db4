// Package files reads files of bounded length, and replaces files as a whole.
package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// BytesMax bounds a file that a person has written.
const BytesMax = 64 << 10

// Read reads a file or stdin, up to one byte beyond the bound.
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

// Replace writes a file as a whole: a concurrent reader sees the old one or the new one.
func Replace(path string, text []byte, mode os.FileMode) error {
	return ReplaceWith(path, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// ReplaceWith is Replace for a text of any length.
func ReplaceWith(path string, mode os.FileMode, write func(io.Writer) error) error {
	next, err := os.CreateTemp(filepath.Dir(path), ".weirctl-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(next.Name()) }() // is gone where all went well
	err = errors.Join(write(next), next.Chmod(mode), next.Close())
	if err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}

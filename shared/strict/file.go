package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// FileBytesMax bounds the files that File and Line read.
const FileBytesMax = 1 << 20

// byteOrderMark begins files that some editors write. It is no part of the text.
const byteOrderMark = "\xef\xbb\xbf"

// File returns the content of a text file without a byte order mark and without line ends at its
// end. A file that is empty, longer than FileBytesMax or in UTF-16 is an error. No error contains
// any part of the text.
func File(field, path string) (string, error) {
	content, err := ReadBounded(path, FileBytesMax)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	text, err := Text(content)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, fmt.Errorf("%s %w", path, err))
	}
	return text, nil
}

// Line is File for a file with a single line, such as a password.
func Line(field, path string) (string, error) {
	text, err := File(field, path)
	if err == nil && strings.ContainsAny(text, "\r\n") {
		return "", fmt.Errorf("%s: %w", field, fmt.Errorf("%s has several lines, want one", path))
	}
	return text, err
}

// Text returns a file's content as text, under the rules of File.
func Text(content []byte) (string, error) {
	if bytes.HasPrefix(content, []byte("\xff\xfe")) || bytes.HasPrefix(content, []byte("\xfe\xff")) ||
		bytes.IndexByte(content, 0) >= 0 {
		return "", errors.New("looks like UTF-16: write it again as UTF-8")
	}
	text := strings.TrimRight(strings.TrimPrefix(string(content), byteOrderMark), "\r\n")
	if strings.TrimSpace(text) == "" {
		return "", errors.New("is empty")
	}
	return text, nil
}

// ReadBounded reads a file. A file longer than bytesMax is an error.
func ReadBounded(path string, bytesMax int) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(file, int64(bytesMax)+1))
	if err != nil {
		return nil, err
	}
	if len(content) > bytesMax {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, bytesMax)
	}
	return content, nil
}

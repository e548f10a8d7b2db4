package plan

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/files"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/settings/document"
)

// DocumentsMax bounds the number of documents in a directory.
const DocumentsMax = 1000

// documentEndings are the endings of documents. Other files in a directory are ignored.
var documentEndings = []string{".yaml", ".yml", ".json"}

// ReadDocument reads a document from a file or stdin, or combines all documents in a directory.
func ReadDocument(name string) (*settings.Document, error) {
	info, err := os.Stat(name)
	if name == "-" || err != nil || !info.IsDir() {
		read, _, err := readOne(name, document.BytesMax)
		return read, err
	}
	files, err := documentsBelow(name)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 { // with --prune it would delete everything
		return nil, fmt.Errorf("%s: it holds no document (%s)", name, strings.Join(documentEndings, ", "))
	}
	parts, left := make([]document.Part, 0, len(files)), document.BytesMax
	for _, file := range files {
		read, bytes, err := readOne(file, left)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		left -= bytes
		parts = append(parts, document.Part{Name: file, Document: read})
	}
	return document.Merge(parts)
}

// readOne reads a file of at most left bytes.
func readOne(name string, left int) (read *settings.Document, bytes int, err error) {
	text, err := files.Read(name, int64(left))
	if err != nil {
		return nil, 0, err
	}
	if len(text) > left && left < document.BytesMax {
		return nil, 0, fmt.Errorf("the documents together are longer than %d bytes", document.BytesMax)
	}
	read, err = document.Parse(text)
	return read, len(text), err
}

// documentsBelow lists the documents in a directory and its subdirectories, sorted by name. Names that begin with a dot
// are ignored.
func documentsBelow(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != dir && strings.HasPrefix(entry.Name(), ".") && entry.IsDir():
			return fs.SkipDir
		case entry.IsDir() || strings.HasPrefix(entry.Name(), "."):
			return nil
		case !slices.Contains(documentEndings, filepath.Ext(path)):
			return nil
		case len(files) == DocumentsMax:
			return fmt.Errorf("%s: it holds more than %d documents", dir, DocumentsMax)
		}
		files = append(files, path)
		return nil
	})
	return files, err
}

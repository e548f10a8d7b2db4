// Package contexts has the flags that select a fleet's API and the caller's identity, and the file of contexts, which
// stores their values under names.
package contexts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/files"
)

// contextsMax bounds the number of contexts in a file.
const contextsMax = 100

// contextNames matches the names that contexts can have.
var contextNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Context has the values for calls to a fleet's API. It has no token, only the place of a token.
type Context struct {
	Name      string `yaml:"name" json:"name"`
	API       string `yaml:"api" json:"api"`
	CA        string `yaml:"ca,omitempty" json:"ca,omitempty"`
	Cert      string `yaml:"cert,omitempty" json:"cert,omitempty"`
	Key       string `yaml:"key,omitempty" json:"key,omitempty"`
	TokenFile string `yaml:"token_file,omitempty" json:"tokenFile,omitempty"`
	TokenEnv  string `yaml:"token_env,omitempty" json:"tokenEnv,omitempty"` // name of a variable
}

// check validates a context, because a person can edit the file.
func (f Context) check() error {
	if !contextNames.MatchString(f.Name) {
		return fmt.Errorf("a context's name is %q (1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', a letter or digit first)",
			f.Name)
	}
	if err := checkAPI(f.API); err != nil {
		return fmt.Errorf("context %s: %w", f.Name, err)
	}
	if f.TokenFile != "" && f.TokenEnv != "" {
		return fmt.Errorf("context %s: a token file and a token variable are both set: set only one", f.Name)
	}
	return nil
}

// File is the file of contexts.
type File struct {
	Current  string    `yaml:"current,omitempty" json:"current"`
	Contexts []Context `yaml:"contexts" json:"contexts"`

	file string
}

// defaultContexts returns the user's file, or "" if the user has no configuration directory.
func defaultContexts() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "weir", "contexts.yaml")
}

// Read reads a file of contexts. A missing file has no contexts.
func Read(file string) (*File, error) {
	all := &File{Contexts: []Context{}, file: cmp.Or(file, defaultContexts())}
	info, err := os.Stat(all.file)
	if all.file == "" || errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 { // a user who can write the file can redirect tokens
		return nil, fmt.Errorf("contexts: other users can write %s: chmod 600 %s", all.file, all.file)
	}
	text, err := files.Read(all.file, files.BytesMax)
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if err := all.parse(text); err != nil {
		return nil, fmt.Errorf("contexts: %s: %w", all.file, err)
	}
	return all, nil
}

func (all *File) parse(text []byte) error {
	if len(text) > files.BytesMax {
		return fmt.Errorf("it is more than %d bytes long", files.BytesMax)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	switch err := decoder.Decode(all); {
	case errors.Is(err, io.EOF): // empty, or only comments
	case err != nil:
		return err
	default:
		if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) { // the next context set would lose it
			return errors.New("it has more than one document: put all contexts into one")
		}
	}
	if len(all.Contexts) > contextsMax {
		return fmt.Errorf("%d contexts (at most %d)", len(all.Contexts), contextsMax)
	}
	names := map[string]bool{}
	for _, f := range all.Contexts {
		if err := f.check(); err != nil {
			return err
		}
		if names[f.Name] {
			return fmt.Errorf("context %s appears twice", f.Name)
		}
		names[f.Name] = true
	}
	return nil
}

// Named returns the context with a name.
func (all *File) Named(name string) (*Context, error) {
	at := slices.IndexFunc(all.Contexts, func(f Context) bool { return f.Name == name })
	if at < 0 {
		return nil, &MissingError{Name: name, file: all.file}
	}
	return &all.Contexts[at], nil
}

// MissingError is the error for a context that is not in the file.
type MissingError struct {
	Name string
	file string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("there is no context %q in %s", e.Name, e.file)
}

// Put adds a context, or replaces the context with the same name.
func (all *File) Put(f Context) {
	all.Remove(f.Name)
	all.Contexts = append(all.Contexts, f)
	slices.SortFunc(all.Contexts, func(a, b Context) int { return strings.Compare(a.Name, b.Name) })
}

// Remove deletes the context with a name.
func (all *File) Remove(name string) {
	all.Contexts = slices.DeleteFunc(all.Contexts, func(f Context) bool { return f.Name == name })
}

// Write replaces the file. Only its owner can read it.
func (all *File) Write() error {
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	if err := (&File{}).parse(text); err != nil {
		return err
	}
	if all.file == "" {
		return errors.New("this user has no configuration directory: name a file with --contexts")
	}
	if err := os.MkdirAll(filepath.Dir(all.file), 0o700); err != nil {
		return err
	}
	return files.Replace(all.file, text, 0o600)
}

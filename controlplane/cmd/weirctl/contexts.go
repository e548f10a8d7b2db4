package main

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
)

// contextsMax bounds a file of contexts.
const contextsMax = 100

// contextNames are the names that contexts may have.
var contextNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// fleetContext is how one fleet's API is called. It has no token, but says where one is.
type fleetContext struct {
	Name      string `yaml:"name" json:"name"`
	API       string `yaml:"api" json:"api"`
	CA        string `yaml:"ca,omitempty" json:"ca,omitempty"`
	Cert      string `yaml:"cert,omitempty" json:"cert,omitempty"`
	Key       string `yaml:"key,omitempty" json:"key,omitempty"`
	TokenFile string `yaml:"token_file,omitempty" json:"tokenFile,omitempty"`
	TokenEnv  string `yaml:"token_env,omitempty" json:"tokenEnv,omitempty"` // name of a variable
}

// check validates a context, which a person may have written.
func (f fleetContext) check() error {
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

// contexts are the fleets that one can switch between.
type contexts struct {
	Current  string         `yaml:"current,omitempty" json:"current"`
	Contexts []fleetContext `yaml:"contexts" json:"contexts"`

	file string
}

// defaultContexts is the file of the user; empty: the machine has no place for it.
func defaultContexts() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "weir", "contexts.yaml")
}

// readContexts reads a file of contexts; a missing file has none.
func readContexts(file string) (*contexts, error) {
	all := &contexts{Contexts: []fleetContext{}, file: cmp.Or(file, defaultContexts())}
	info, err := os.Stat(all.file)
	if all.file == "" || errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 { // whose writer receives the tokens
		return nil, fmt.Errorf("contexts: other users can write %s: chmod 600 %s", all.file, all.file)
	}
	text, err := readFile(all.file, fileBytesMax)
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if err := all.parse(text); err != nil {
		return nil, fmt.Errorf("contexts: %s: %w", all.file, err)
	}
	return all, nil
}

func (all *contexts) parse(text []byte) error {
	if len(text) > fileBytesMax {
		return fmt.Errorf("it is more than %d bytes long", fileBytesMax)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	switch err := decoder.Decode(all); {
	case errors.Is(err, io.EOF): // empty, or comments alone
	case err != nil:
		return err
	default:
		if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) { // it would be lost with the next context set
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

// named is the context of a name.
func (all *contexts) named(name string) (*fleetContext, error) {
	at := slices.IndexFunc(all.Contexts, func(f fleetContext) bool { return f.Name == name })
	if at < 0 {
		return nil, &hinted{fmt.Errorf("there is no context %q in %s", name, all.file), exitUsage,
			"See weirctl context list; weirctl context set makes one."}
	}
	return &all.Contexts[at], nil
}

// put adds a context, or replaces the one of its name.
func (all *contexts) put(f fleetContext) {
	all.remove(f.Name)
	all.Contexts = append(all.Contexts, f)
	slices.SortFunc(all.Contexts, func(a, b fleetContext) int { return strings.Compare(a.Name, b.Name) })
}

func (all *contexts) remove(name string) {
	all.Contexts = slices.DeleteFunc(all.Contexts, func(f fleetContext) bool { return f.Name == name })
}

// write replaces the file; only its owner may read it.
func (all *contexts) write() error {
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	if err := (&contexts{}).parse(text); err != nil {
		return err
	}
	if all.file == "" {
		return errors.New("this user has no configuration directory: name a file with --contexts")
	}
	if err := os.MkdirAll(filepath.Dir(all.file), 0o700); err != nil {
		return err
	}
	return replaceFile(all.file, text, 0o600)
}

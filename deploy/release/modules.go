package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mainModule is the module of the repository's root.
const mainModule = "github.com/weirhq/weir"

// published are the modules below the root that users download with `go get`. Each has its own tag
// in a release: its folder, then the version, for example dataplane/adapters/golimiter/v1.2.3.
const published = "dataplane/adapters/*/go.mod"

// released matches the version of a release. Modules that are not published use v0.0.0 for the
// checkout, so v0.0.0 is not a release.
var released = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// moduleFile is a go.mod in the form that `go mod edit -json` prints.
type moduleFile struct {
	Module  struct{ Path string }
	Require []struct{ Path, Version string }
	Replace []struct {
		Old struct{ Path string }
	}
}

// checkModules returns an error if `go get` could not resolve a published module. A replace
// directive only works in this repository, so each module must require a released version of the
// root's module: this release, if the commit has a release tag. tags are all tags of the commit.
func checkModules(ctx context.Context, root string, tags []string) error {
	files, err := filepath.Glob(filepath.Join(root, published))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no module is at %s", published)
	}
	version := ""
	if i := slices.IndexFunc(tags, released.MatchString); i >= 0 {
		version = tags[i]
	}
	var found []error
	for _, file := range files {
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err == nil {
			err = checkModule(ctx, file, filepath.ToSlash(dir), version, tags)
		}
		found = append(found, err)
	}
	return errors.Join(found...)
}

func checkModule(ctx context.Context, file, dir, version string, tags []string) error {
	text, err := exec.CommandContext(ctx, "go", "mod", "edit", "-json", file).Output()
	if err != nil {
		return fmt.Errorf("%s/go.mod: %w", dir, err)
	}
	var m moduleFile
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("%s/go.mod: %w", dir, err)
	}
	if want := path.Join(mainModule, dir); m.Module.Path != want {
		return fmt.Errorf("%s/go.mod: module is %s, want %s", dir, m.Module.Path, want)
	}
	required := ""
	for _, r := range m.Require {
		if r.Path == mainModule {
			required = r.Version
		}
	}
	for _, r := range m.Replace {
		if r.Old.Path != mainModule {
			return fmt.Errorf("%s/go.mod: %s is replaced, which has no effect for users of the module", dir, r.Old.Path)
		}
	}
	tag := dir + "/" + version
	switch {
	case !released.MatchString(required) || strings.HasPrefix(required, "v0.0.0"):
		return fmt.Errorf("%s/go.mod: requires %s %q, want a released version", dir, mainModule, required)
	case version == "":
		return nil
	case required != version:
		return fmt.Errorf("%s/go.mod: requires %s %s, want %s", dir, mainModule, required, version)
	case !slices.Contains(tags, tag):
		return fmt.Errorf("tag %s is missing: without it, users cannot download version %s of the module", tag, version)
	}
	return nil
}

// tagsHere returns the tags of the commit that is checked out in dir.
func tagsHere(ctx context.Context, dir string) ([]string, error) {
	git := exec.CommandContext(ctx, "git", "tag", "--points-at", "HEAD")
	git.Dir, git.Stderr = dir, os.Stderr
	list, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tags of this commit: %w", err)
	}
	return strings.Fields(string(list)), nil
}

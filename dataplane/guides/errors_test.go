package guides

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
)

// reserved returns the next step after a call of Reserve: look at the answer, wait, or report a fault.
func reserved(err error) string {
	switch {
	case err == nil:
		return "look at Allowed"
	case errors.Is(err, dataplane.ErrReservations), errors.Is(err, dataplane.ErrBusy):
		return "try again in a second"
	case errors.Is(err, dataplane.ErrInvalid), errors.Is(err, dataplane.ErrReservationUsed):
		return "mend the program"
	default: // the origin did not answer
		return "try again with the same ID"
	}
}

func TestErrorsOfReservationsAreDistinct(t *testing.T) {
	for err, want := range map[error]string{
		nil:                              "look at Allowed",
		dataplane.ErrReservationOver:     "mend the program",
		errors.New("redis: i/o timeout"): "try again with the same ID",
		fmt.Errorf("%w: id has 0 bytes", dataplane.ErrInvalid):         "mend the program",
		fmt.Errorf("%w: the key has 10000", dataplane.ErrReservations): "try again in a second",
	} {
		if got := reserved(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// The page lists each error that a package for users exports, and no other.
func TestThePageListsEachError(t *testing.T) {
	page, err := os.ReadFile("errors.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(string(page), -1) {
		for _, name := range regexp.MustCompile("`(\\w+\\.Err\\w+)`").FindAllStringSubmatch(row[1], -1) {
			listed[name[1]] = true
		}
	}
	exist := make(map[string]bool)
	for _, folder := range []string{"..", "../httplimit", "../connectlimit", "../streamed", "../store", "../memstore",
		"../redisorigin", "../mysqlcounts", "../relay", "../relay/peers", "../adapters/golimiter", "../adapters/ululimiter",
		"../adapters/gubernator"} {
		for _, name := range exportedErrors(t, folder) {
			exist[name] = true
			if !listed[name] {
				t.Errorf("errors.md does not list %s", name)
			}
		}
	}
	for name := range listed {
		if !exist[name] {
			t.Errorf("errors.md lists %s, which does not exist", name)
		}
	}
}

// exportedErrors returns the variables of a package whose names begin with Err.
func exportedErrors(t *testing.T, folder string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no files, %v", folder, err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			group, ok := declared.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			for _, spec := range group.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if regexp.MustCompile(`^Err[A-Z]`).MatchString(name.Name) {
						names = append(names, file.Name.Name+"."+name.Name)
					}
				}
			}
		}
	}
	return names
}

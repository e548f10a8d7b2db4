package controlplane

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// linesMax and methodsMax bound a package, without its tests, and a type. A package or a type that has more is several
// ideas in one: split it by idea.
const (
	linesMax   = 5000
	methodsMax = 45
)

// No package has more lines, and no type more methods, than one person can keep in mind.
func TestSizesOfPackagesAndTypes(t *testing.T) {
	lines, methods := map[string]int{}, map[string]int{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		lines[dir] += bytes.Count(text, []byte("\n"))
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv != nil {
				methods[dir+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines["rollout"] < 1000 || methods["rollout.Rollout"] < 10 {
		t.Fatalf("%d lines and %d methods are counted of rollouts", lines["rollout"], methods["rollout.Rollout"])
	}
	for dir, n := range lines {
		if n > linesMax {
			t.Errorf("package %s has %d lines without tests (at most %d)", dir, n, linesMax)
		}
	}
	for name, n := range methods {
		if n > methodsMax {
			t.Errorf("type %s has %d methods (at most %d)", name, n, methodsMax)
		}
	}
}

// receiver returns the name of a method's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return "?"
}

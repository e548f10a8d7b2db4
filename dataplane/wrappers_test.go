package dataplane_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// stubs are types of tests that embed only the interface, and no origin: they have all methods that their test calls.
var stubs = map[string]bool{
	"emptyOrigin": true, "stuck": true, // of this package
	"withoutParts": true,                                  // of this package: the parts that it hides are its test
	"threeShards":  true, "silent": true, "partial": true, // of internal/outbox, which calls nothing else
	"noMailbox": true, // of relay: the parts that it hides are its test
}

// The optional parts of an origin are found by type assertion, so a wrapper that embeds store.Origin or
// store.RelayOrigin hides the parts of the wrapped origin. Wrappers must embed store.FullOrigin.
func TestWrappersOfAnOriginHideNoPart(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			name, of := "a struct", ast.Expr(nil)
			switch n := n.(type) {
			case *ast.TypeSpec:
				name, of = n.Name.Name, n.Type
			case *ast.CompositeLit:
				of = n.Type
			}
			switch embeddedOrigin(of) {
			case "FullOrigin":
				seen++
			case "Origin", "RelayOrigin":
				// The harness of storetest checks the parts itself.
				harness := []string{"storetest", filepath.Join("storetest", "internal", "sender")}
				if !stubs[name] && !slices.Contains(harness, filepath.Dir(path)) {
					t.Errorf("%s: %s embeds a part of an origin, which hides the others: embed store.FullOrigin", path, name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 5 {
		t.Errorf("%d wrappers were found: %v", seen, err)
	}
}

// embeddedOrigin returns the origin interface of package store that a struct embeds.
func embeddedOrigin(of ast.Expr) string {
	s, ok := of.(*ast.StructType)
	if !ok {
		return ""
	}
	for _, field := range s.Fields.List {
		selector, ok := field.Type.(*ast.SelectorExpr)
		if !ok || len(field.Names) > 0 {
			continue
		}
		if of, ok := selector.X.(*ast.Ident); ok && of.Name == "store" && strings.HasSuffix(selector.Sel.Name, "Origin") {
			return selector.Sel.Name
		}
	}
	return ""
}

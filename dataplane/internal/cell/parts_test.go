package cell

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"
)

// owners are the types whose methods alone touch a field. A field of Entry or behind that is not listed may be used by
// every part: identity and names are constant, flags and the parts have methods of their own, and mu guards all parts.
var owners = map[string][]string{
	"counter.words":        {"counter"},
	"counter.seq":          {"counter"},
	"minLimits.pair":       {"minLimits"},
	"behind.others":        {"Entry"},
	"Entry.refreshedAt":    {"Reads"},
	"behind.strictUntil":   {"Reads"},
	"behind.flight":        {"Reads"},
	"books.cells":          {"Ledger", "books"},
	"books.epochs":         {"Ledger", "books"},
	"books.extra":          {"Ledger", "books"},
	"books.next":           {"DirtyList"},
	"cellLedger.settled":   {"Ledger", "books"},
	"cellLedger.peers":     {"Ledger", "books"},
	"ledgerExtra.unnamed":  {"Ledger", "books"},
	"ledgerExtra.credit":   {"Ledger", "books"},
	"ledgerExtra.netted":   {"Ledger", "books"},
	"ledgerExtra.restore":  {"Ledger", "books"},
	"ledgerExtra.carried":  {"Ledger", "books"},
	"ledgerExtra.inFlight": {"Ledger", "books"},
	"claims.cost":          {"claims"},
	"claims.kept":          {"claims"},
	"claims.overShare":     {"claims"},
	"past.history":         {"Histories", "past"},
	"past.givenBack":       {"Histories", "past"},
	"past.hint":            {"past"},
	"meter.reading":        {"Estimates", "meter"},
	"meter.wantSince":      {"Estimates", "meter"},
	"meter.limit":          {"Estimates", "meter"},
}

// Each part of an entry changes its own fields alone, so the methods of a single type show all that can happen to a
// field.
func TestOnlyTheOwnerOfAFieldTouchesIt(t *testing.T) {
	for _, trespass := range trespasses(t, "") {
		t.Error(trespass)
	}
}

// The test above finds a method that reaches into another part.
func TestATrespassIsFound(t *testing.T) {
	const planted = `package cell
func (r Reads) reach() { r.e.keeps().extra.claims.cost[0]++; r.e.counter.seq.Store(1) }`
	if got := trespasses(t, planted); len(got) != 3 {
		t.Errorf("found %q, want claims.cost, books.extra and counter.seq", got)
	}
}

// No type has more methods than a reader can hold.
func TestNoTypeIsANamespace(t *testing.T) {
	const most = 45
	methods := map[string]int{}
	_, files := parsePackage(t, "")
	for _, f := range files {
		for _, d := range f.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok && fd.Recv != nil {
				methods[receiverOf(fd)]++
			}
		}
	}
	for of, n := range methods {
		if n > most {
			t.Errorf("%s has %d methods (at most %d)", of, n, most)
		}
	}
}

func parsePackage(t *testing.T, extra string) (*token.FileSet, []*ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	names, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	parse := func(name string, src any) {
		f, err := parser.ParseFile(fset, name, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	for _, n := range names {
		if strings.HasSuffix(n.Name(), ".go") && !strings.HasSuffix(n.Name(), "_test.go") {
			parse(n.Name(), nil)
		}
	}
	if extra != "" {
		parse("planted.go", extra)
	}
	return fset, files
}

func receiverOf(fd *ast.FuncDecl) string {
	return strings.TrimPrefix(types.ExprString(fd.Recv.List[0].Type), "*")
}

// emptyImports gives packages without anything in them: only fields of this package matter here.
type emptyImports struct{}

func (emptyImports) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, path[strings.LastIndex(path, "/")+1:])
	p.MarkComplete()
	return p, nil
}

// trespasses returns where a field is selected in a method of a type that is none of its owners.
func trespasses(t *testing.T, planted string) (found []string) {
	fset, files := parsePackage(t, planted)
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: emptyImports{}, Error: func(error) {}} // the imports' contents are missing
	pkg, _ := conf.Check("cell", fset, files, info)
	fields, seen := map[types.Object]string{}, 0
	for name := range owners {
		of, field, _ := strings.Cut(name, ".")
		str := pkg.Scope().Lookup(of).Type().Underlying().(*types.Struct)
		for i := range str.NumFields() {
			if str.Field(i).Name() == field {
				fields[str.Field(i)] = name
			}
		}
	}
	if len(fields) != len(owners) {
		t.Fatalf("%d of %d fields exist", len(fields), len(owners))
	}
	for _, f := range files {
		for _, d := range f.Decls {
			fd, ok := d.(*ast.FuncDecl)
			if !ok || fd.Body == nil {
				continue
			}
			of := ""
			if fd.Recv != nil {
				of = receiverOf(fd)
			}
			ast.Inspect(fd.Body, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok || info.Selections[s] == nil {
					return true
				}
				name, ok := fields[info.Selections[s].Obj()]
				if !ok {
					return true
				}
				seen++
				if !slices.Contains(owners[name], of) {
					found = append(found, fmt.Sprintf("%s: %s in %s of %q", fset.Position(s.Pos()), name, fd.Name.Name, of))
				}
				return true
			})
		}
	}
	if seen < 100 {
		t.Fatalf("%d uses of the fields were resolved", seen)
	}
	return found
}

package deploy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// doors are the functions of libraries that open MySQL or Redis, or parse their addresses, by the package that has
// them, and our packages that may call them. All other code must go through these packages, which set a connection up.
var doors = map[string]struct {
	names []string
	may   []string
}{
	"database/sql": {[]string{"Open", "OpenDB"}, []string{"shared/mysqlclient", "shared/servers"}},
	"github.com/go-sql-driver/mysql": {[]string{"NewConnector", "ParseDSN", "NewConfig", "MySQLDriver"},
		[]string{"shared/mysqlclient", "shared/mysqldsn", "shared/servers"}},
	"github.com/redis/go-redis/v9": {[]string{"NewClient", "NewUniversalClient", "NewClusterClient", "NewFailoverClient",
		"NewFailoverClusterClient", "NewSentinelClient", "NewRing", "ParseURL", "ParseClusterURL", "ParseFailoverURL"},
		[]string{"shared/redisclient"}},
}

// typed lists packages that read text typed into forms and scripts, and functions that would read it leniently (+5,
// 010, 0x10). The packages must use shared/strict.
var typed = struct{ rooms, lenient []string }{
	rooms:   []string{"controlplane/console", "dataplane/sim"},
	lenient: []string{"strconv.Atoi", "strconv.ParseInt", "strconv.ParseUint", "strconv.ParseFloat", "time.ParseDuration"},
}

// There is only one way to open MySQL and only one to open Redis, and command lines are parsed strictly. Tests, and
// modules of their own such as benchmarks of other libraries, may open servers without Weir's packages.
func TestDependencyRulesOfTheDoors(t *testing.T) {
	root := ".."
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			nested, _ := filepath.Glob(filepath.Join(path, "go.mod"))
			if path != root && (len(nested) > 0 || strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		room, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, breach := range doorsOf(file, filepath.ToSlash(room)) {
			t.Errorf("%s: %s", path, breach)
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Errorf("%d files, %v", files, err)
	}
}

// doorsOf returns the calls in a file of a package that it may not make.
func doorsOf(file *ast.File, room string) (breaches []string) {
	imported := make(map[string]string) // path by name
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if path == "github.com/redis/go-redis/v9" {
			name = "redis"
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		if name == "." && doors[path].names != nil {
			breaches = append(breaches, "imports all of "+path)
		}
		imported[name] = path
	}
	// A parser of command lines reads numbers strictly.
	strictly := false
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := selector.X.(*ast.Ident)
		strictly = strictly || ok && selector.Sel.Name == "Strict" && strings.HasSuffix(imported[of.Name], "/strict/flags")
		return true
	})
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, ok := selector.X.(*ast.Ident)
		if !ok {
			return true
		}
		path := imported[of.Name]
		if call := path + "." + selector.Sel.Name; slices.Contains(typed.rooms, room) && slices.Contains(typed.lenient, call) {
			breaches = append(breaches, "uses "+call+", where shared/strict reads what people type")
		}
		if path == "github.com/alecthomas/kong" && selector.Sel.Name == "New" && !strictly {
			breaches = append(breaches, "makes a parser without flags.Strict, which would read 0100 as 64")
		}
		if door := doors[path]; slices.Contains(door.names, selector.Sel.Name) && !slices.Contains(door.may, room) {
			breaches = append(breaches, "uses "+of.Name+"."+selector.Sel.Name+", which only "+strings.Join(door.may, ", ")+" may")
		}
		return true
	})
	return breaches
}

// A planted call of every door is noticed.
func TestDependencyRulesOfTheDoorsNoticeABreach(t *testing.T) {
	const lenient = "package x\nimport \"github.com/alecthomas/kong\"\nvar y = kong.New\n"
	if file, err := parser.ParseFile(token.NewFileSet(), "x.go", lenient, parser.SkipObjectResolution); err != nil || len(doorsOf(file, "x")) != 1 {
		t.Errorf("a lenient parser of flags is not noticed: %v", err)
	}
	for _, call := range typed.lenient {
		path, name, _ := strings.Cut(call, ".")
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nimport "+strconv.Quote(path)+"\nvar y = "+path+"."+name+"\n", parser.SkipObjectResolution)
		if err != nil || len(doorsOf(file, typed.rooms[0])) != 1 || len(doorsOf(file, "shared/strict")) != 0 {
			t.Errorf("%s in a form is not noticed, or not allowed elsewhere: %v", call, err)
		}
	}
	for path, door := range doors {
		for _, name := range door.names {
			source := "package x\nimport planted " + strconv.Quote(path) + "\nvar y = planted." + name + "\n"
			file, err := parser.ParseFile(token.NewFileSet(), "x.go", source, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if len(doorsOf(file, "dataplane/node")) != 1 || len(doorsOf(file, door.may[0])) != 0 {
				t.Errorf("%s.%s is not noticed, or not allowed where it is needed", path, name)
			}
		}
	}
}

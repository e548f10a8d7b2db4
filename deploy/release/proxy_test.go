package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A program outside this repository can get the root's module and each adapter from a module proxy, and build with
// them. The proxy serves the working tree under the version that the adapters require.
func TestUsersGetEachModuleFromAProxy(t *testing.T) {
	p := newProxy(t)
	adapters := p.serveTree(t)
	if len(adapters) != 3 {
		t.Fatalf("adapters %v, want golimiter, gubernator and ululimiter", adapters)
	}

	// A program that imports the limiter gets the modules that the limiter links, and no others.
	user := p.newUser(t, "go 1.26.0\n", "github.com/weirhq/weir/dataplane")
	user.run("go", "get", mainModule+"@"+p.version)
	user.run("go", "mod", "tidy")
	user.run("go", "build", "-trimpath", ".")
	linked := strings.Fields(user.run("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "."))
	slices.Sort(linked)
	if got, want := slices.Compact(linked), []string{"example.com/user", "github.com/sony/gobreaker/v2", mainModule}; !slices.Equal(got, want) {
		t.Errorf("the program links %v, want %v", got, want)
	}

	for _, adapter := range adapters {
		user := p.newUser(t, "go 1.26.0\n", adapter)
		user.run("go", "get", adapter+"@"+p.version)
		if got := user.requirements(); got[mainModule] != p.version || got[adapter] != p.version {
			t.Errorf("%s: the program requires %v, want both modules at %s", adapter, got, p.version)
		}
		if path.Base(adapter) == "gubernator" { // it links Kubernetes' client, which takes minutes to compile
			user.run("go", "list", "-deps", ".")
		} else {
			user.run("go", "build", "-trimpath", ".")
		}
	}
}

// Weir's requirements raise the versions of modules that a program requires itself, also if no package that the program
// links needs them. The documentation of package dataplane states this.
func TestGettingWeirRaisesVersions(t *testing.T) {
	p := newProxy(t)
	p.serveTree(t)
	const grpc = "google.golang.org/grpc"
	p.serve(t, grpc, "v1.0.1", map[string][]byte{"go.mod": []byte("module " + grpc + "\n"), "grpc.go": []byte("package grpc\n")})
	user := p.newUser(t, "go 1.24.0\n\nrequire "+grpc+" v1.0.1\n", "github.com/weirhq/weir/dataplane", grpc)
	user.run("go", "get", mainModule+"@"+p.version)
	own := moduleOf(t, "../../go.mod")
	if got := user.requirements()[grpc]; got != own.versionOf(grpc) {
		t.Errorf("%s is %s, want Weir's %s", grpc, got, own.versionOf(grpc))
	}
	if text := user.module(); !strings.Contains(text, "\ngo 1.26") {
		t.Errorf("the program's module has\n%s\nwant go 1.26, as Weir's", text)
	}
	doc, err := os.ReadFile("../../dataplane/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"grpc", "OpenTelemetry", "MySQL", "Go 1.26"} {
		if !bytes.Contains(doc, []byte(name)) {
			t.Errorf("dataplane/doc.go does not state that go get raises the version of %s", name)
		}
	}
}

// proxy is a directory that the go command reads as a module proxy. Modules that it lacks come from the module cache.
type proxy struct {
	dir     string
	version string // of Weir's modules
	next    string // the proxy of all other modules
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return &proxy{dir: t.TempDir(), next: "file://" + filepath.ToSlash(filepath.Join(strings.TrimSpace(string(cache)), "cache", "download"))}
}

// serveTree adds the root's module and the published modules below it, as a release of this tree would. It returns the
// paths of the latter.
func (p *proxy) serveTree(t *testing.T) (paths []string) {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	git.Dir = "../.."
	list, err := git.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(list))
	folders := []string{"."}
	for _, file := range files {
		if path.Base(file) == "go.mod" && file != "go.mod" {
			folders = append(folders, path.Dir(file))
		}
	}
	modules := make(map[string]map[string][]byte) // by folder, the files by their paths in it
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join("../..", file))
		if os.IsNotExist(err) { // deleted, and not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		folder := "."
		for _, f := range folders {
			if strings.HasPrefix(file, f+"/") && len(f) > len(folder) {
				folder = f
			}
		}
		if modules[folder] == nil {
			modules[folder] = make(map[string][]byte)
		}
		modules[folder][strings.TrimPrefix(file, folder+"/")] = content
	}
	for _, folder := range slices.Sorted(maps.Keys(modules)) {
		if ok, _ := path.Match(published, folder+"/go.mod"); !ok {
			continue
		}
		m := moduleOf(t, filepath.Join("../..", folder, "go.mod"))
		if p.version == "" {
			p.version = m.versionOf(mainModule)
		}
		p.serve(t, m.Module.Path, p.version, modules[folder])
		paths = append(paths, m.Module.Path)
	}
	p.serve(t, mainModule, p.version, modules["."])
	return paths
}

// serve adds a module in the layout that the go command expects.
func (p *proxy) serve(t *testing.T, module, version string, files map[string][]byte) {
	t.Helper()
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(module + "@" + version + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(p.dir, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": []byte(`{"Version":"` + version + `","Time":"2026-01-02T15:04:05Z"}`),
		version + ".mod": files["go.mod"], version + ".zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// user is a program of another module.
type user struct {
	t   *testing.T
	dir string
	env []string
}

// newUser returns a program that imports packages. module is its go.mod without the first line.
func (p *proxy) newUser(t *testing.T, module string, packages ...string) user {
	t.Helper()
	u := user{t: t, dir: t.TempDir(), env: append(os.Environ(), "GOPROXY=file://"+filepath.ToSlash(p.dir)+","+p.next,
		"GOMODCACHE="+filepath.Join(p.dir, "cache"), "GOFLAGS=-mod=mod -modcacherw", "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local",
		"GONOPROXY=", "GOPRIVATE=")}
	program := "package main\n\nimport (\n"
	for _, name := range packages {
		program += "\t_ \"" + name + "\"\n"
	}
	for name, text := range map[string]string{"go.mod": "module example.com/user\n\n" + module, "main.go": program + ")\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(u.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

func (u user) run(name string, args ...string) string {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), name, args...)
	cmd.Dir, cmd.Env = u.dir, u.env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		u.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

func (u user) module() string {
	u.t.Helper()
	text, err := os.ReadFile(filepath.Join(u.dir, "go.mod"))
	if err != nil {
		u.t.Fatal(err)
	}
	return string(text)
}

// requirements are the versions in the program's go.mod, by module.
func (u user) requirements() map[string]string {
	u.t.Helper()
	versions := make(map[string]string)
	for _, r := range moduleOf(u.t, filepath.Join(u.dir, "go.mod")).Require {
		versions[r.Path] = r.Version
	}
	return versions
}

func moduleOf(t *testing.T, file string) (m moduleFile) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return m
}

func (m moduleFile) versionOf(module string) string {
	for _, r := range m.Require {
		if r.Path == module {
			return r.Version
		}
	}
	return ""
}

package main

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// "The same commit and toolchain give the same bytes, wherever they are built": from two directories. The test builds
// the smallest program, because all are built alike. It leaves out git's stamps, so uncommitted changes do not matter.
func TestBuildsAreReproducible(t *testing.T) {
	here := target{runtime.GOOS, runtime.GOARCH}
	var built [2][]byte
	for i, dir := range []string{"../..", copySources(t)} {
		path := filepath.Join(t.TempDir(), "probe")
		if err := build(t.Context(), dir, "./deploy/docker/probe", path, here, "-buildvcs=false"); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		built[i] = content
	}
	if string(built[0]) != string(built[1]) {
		t.Errorf("two builds differ: %d and %d bytes", len(built[0]), len(built[1]))
	}
}

// copySources copies the files that git tracks to another folder.
func copySources(t *testing.T) string {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "go.mod", "go.sum", "deploy/docker")
	git.Dir = "../.."
	list, err := git.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for line := range strings.Lines(string(list)) {
		name := strings.TrimSpace(line)
		content, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The bill has every module that is linked, once, and the checksum of the program itself.
func TestBillOfMaterials(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	b, err := billOf(program)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Components) != len(info.Deps)+1 || len(b.Metadata.Component.Hashes[0].Content) != 64 {
		t.Errorf("%d components of %d modules and std; %+v", len(b.Components), len(info.Deps), b.Metadata)
	}
	refs := b.Dependencies[0].DependsOn
	slices.Sort(refs)
	if len(slices.Compact(refs)) != len(b.Components) {
		t.Errorf("components with the same name: %v", refs)
	}
}

// Sums are as sha256sum writes them, by name alone.
func TestSums(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "empty")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeSums(filepath.Join(dir, "SHA256SUMS"), []string{file}); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if want := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n"; err != nil || string(sums) != want {
		t.Errorf("%q, want %q; %v", sums, want, err)
	}
}

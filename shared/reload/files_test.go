package reload

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Files are applied when they are opened and whenever any of them changes, together and in order. A folder stands for
// its YAML files.
func TestFilesAreAppliedWhenTheyChange(t *testing.T) {
	folder, single := t.TempDir(), filepath.Join(t.TempDir(), "single")
	write(t, single, "s")
	write(t, filepath.Join(folder, "b.yaml"), "b")
	write(t, filepath.Join(folder, "notes.txt"), "not read")
	write(t, filepath.Join(folder, ".hidden.yaml"), "not read")
	var seen string
	files, err := Open([]string{single, folder}, func(files []File) error {
		seen = ""
		for _, f := range files {
			seen += filepath.Base(f.Path) + "=" + string(f.Content) + " "
		}
		return nil
	})
	if err != nil || seen != "single=s b.yaml=b " {
		t.Fatalf("opened: %q, error %v", seen, err)
	}
	for i, step := range []struct {
		do      func()
		changed bool
		want    string
	}{
		{func() {}, false, "single=s b.yaml=b "},
		{func() { write(t, single, "t") }, true, "single=t b.yaml=b "},
		{func() { write(t, filepath.Join(folder, "a.yml"), "a") }, true, "single=t a.yml=a b.yaml=b "},
		{func() { os.Remove(filepath.Join(folder, "b.yaml")) }, true, "single=t a.yml=a "},
	} {
		step.do()
		if changed, err := files.Check(); err != nil || changed != step.changed || seen != step.want {
			t.Errorf("step %d: changed %v, %q, error %v", i, changed, seen, err)
		}
	}
	os.Remove(filepath.Join(folder, "a.yml"))
	if _, err := files.Check(); err == nil || !strings.Contains(err.Error(), folder+" holds no *.yaml file") {
		t.Errorf("an empty folder: %v", err)
	}
}

// Contents that apply rejects are reported once, and not tried again until they change.
func TestRefusedContentsAreToldOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "good")
	tried := 0
	files, err := Open([]string{path}, func(files []File) error {
		tried++
		if string(files[0].Content) == "bad" {
			return errors.New("refused")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "bad")
	if changed, err := files.Check(); !changed || err == nil {
		t.Errorf("changed %v, error %v", changed, err)
	}
	if changed, err := files.Check(); changed || err != nil || tried != 2 {
		t.Errorf("again: changed %v, error %v, applied %d times", changed, err, tried)
	}
	write(t, path, strings.Repeat("x", BytesMax+1))
	if _, err := files.Check(); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a file that is too long: %v", err)
	}
	if _, err := OpenBounded([]string{path}, BytesMax, func([]File) error { return nil }); err == nil || !strings.Contains(err.Error(), "longer than 4194304 bytes") {
		t.Errorf("a file that is too long: %v", err)
	}
	if _, err := OpenBounded([]string{path}, BytesMax+1, func([]File) error { return nil }); err != nil {
		t.Errorf("a file as long as its bound: %v", err)
	}
	var none *Files
	if changed, err := none.Check(); changed || err != nil {
		t.Errorf("no files: changed %v, error %v", changed, err)
	}
}

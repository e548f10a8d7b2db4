package main

import (
	"os"
	"os/exec"
	"testing"
)

// The edits have to fit the standard library of the version of Go that builds the guest.
func TestASteadyStandardLibraryCompiles(t *testing.T) {
	overlay, err := steady("../..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlay, "math/rand/v2", "hash/maphash", "sync")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

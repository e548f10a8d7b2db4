// Package clients has no code of its own. Its tests check the packages for other languages against the requirements of
// their registries.
package clients

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// Each package is complete: it contains the license, and the Python package declares that it has types (PEP 561).
func TestPackagesHoldTheirLicence(t *testing.T) {
	licence, err := os.ReadFile("../../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"js/LICENSE", "python/LICENSE"} {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, licence) {
			t.Errorf("%s is not the repository's licence: %v", name, err)
		}
	}
	if _, err := os.Stat("python/weir/py.typed"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"js/package.json": `"LICENSE"`, "python/pyproject.toml": `weir = ["py.typed"]`} {
		if got, err := os.ReadFile(name); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s does not hold %s: %v", name, want, err)
		}
	}
}

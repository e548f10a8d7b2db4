package check

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// An image is a static program on nothing: from scratch, not as root, from a toolchain
// that is named exactly, and with a probe that is in it.
func TestDockerfile(t *testing.T) {
	parsed, err := parser.Parse(bytes.NewReader(read(t, filepath.Join(root, "deploy/docker/Dockerfile"))))
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range parsed.Warnings {
		t.Errorf("buildkit warns: %s", warning.Short)
	}
	type stage struct {
		from, user, entrypoint, copied string
		healthcheck, static, trimmed   bool
	}
	stages := make(map[string]*stage)
	var current *stage
	for _, line := range parsed.AST.Children {
		words := strings.Fields(line.Original)
		switch strings.ToUpper(words[0]) {
		case "FROM":
			words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "--") })
			current = &stage{from: words[1]}
			if from := stages[words[1]]; from != nil {
				current.user = from.user
			}
			stages[words[3]] = current
		case "USER":
			current.user = words[1]
		case "ENTRYPOINT":
			current.entrypoint = line.Original
		case "COPY":
			current.copied += words[len(words)-1] + " "
		case "HEALTHCHECK":
			current.healthcheck = true
		case "RUN":
			current.static = current.static || strings.Contains(line.Original, "CGO_ENABLED=0")
			current.trimmed = current.trimmed || strings.Contains(line.Original, "-trimpath")
		}
	}
	if b := stages["build"]; b == nil || !b.static || !b.trimmed || strings.Count(b.from, ".") != 2 || stages["base"] == nil || stages["base"].from != "scratch" {
		t.Errorf("the stages build and base: %+v, %+v", stages["build"], stages["base"])
	}
	for _, name := range []string{"weir-node", "weir-control", "weirctl"} {
		s := stages[name]
		if s == nil || s.from != "base" || s.user != "65532:65532" || s.entrypoint != `ENTRYPOINT ["/`+name+`"]` || s.copied != "/"+name+" " {
			t.Errorf("%s: %+v", name, s)
		} else if s.healthcheck == (name == "weirctl") {
			t.Errorf("%s: a health check: %v", name, s.healthcheck)
		}
	}
}

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// bill is a bill of materials, CycloneDX 1.6, made of the build information in a Go program. It has neither a time nor
// a random number: the same program has the same bill.
type bill struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// writeBill writes the bill of a program next to the program.
func writeBill(program string) (path string, err error) {
	b, err := billOf(program)
	if err != nil {
		return "", fmt.Errorf("bill of materials of %s: %w", program, err)
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return "", err
	}
	path = program + ".cdx.json"
	return path, os.WriteFile(path, append(text, '\n'), 0o644)
}

func billOf(program string) (bill, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return bill{}, err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return bill{}, err
	}
	name := filepath.Base(info.Path)
	self := component{Type: "application", Ref: name, Name: name, Version: info.Main.Version,
		PURL:   purl(info.Main.Path, info.Main.Version),
		Hashes: []hash{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(content))}}}
	for _, s := range info.Settings {
		self.Properties = append(self.Properties, property{"go:" + s.Key, s.Value})
	}
	b := bill{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{self}, Components: []component{}}
	uses := dependency{Ref: name}
	std := component{Type: "library", Name: "std", Version: info.GoVersion,
		PURL: purl("std", strings.TrimPrefix(info.GoVersion, "go"))}
	std.Ref = std.PURL
	b.Components, uses.DependsOn = append(b.Components, std), append(uses.DependsOn, std.Ref)
	for _, module := range info.Deps {
		c := library(module)
		b.Components, uses.DependsOn = append(b.Components, c), append(uses.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{uses}
	return b, nil
}

// library returns a module as it was linked: its replacement, if it is replaced.
func library(module *debug.Module) component {
	if module.Replace != nil {
		module = module.Replace
	}
	c := component{Type: "library", Name: module.Path, Version: module.Version, PURL: purl(module.Path, module.Version)}
	c.Ref = c.PURL
	if module.Sum != "" { // of the module's files, by Go's own scheme: none of CycloneDX'
		c.Properties = []property{{"go:sum", module.Sum}}
	}
	return c
}

func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

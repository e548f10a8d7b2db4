// Command release builds the files of a release: static programs for each system, their checksums,
// and a list of their components (CycloneDX). `make release` calls it.
//
//	release [-out DIR]
//
// The same commit and toolchain produce the same bytes on every machine. The version is that of
// git's tags, as the Go toolchain stamps it, so there is no release without git. Restate's server
// is not included, because it has its own license and its own releases.
//
// If users could not download the adapters of a commit, release returns an error: see checkModules.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

var (
	programs = []string{"./dataplane/cmd/weir-node", "./dataplane/cmd/weir-sim", "./controlplane/cmd/weir-control",
		"./controlplane/cmd/weirctl"}
	targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}
)

// target is a system to build for.
type target struct{ os, arch string }

func main() {
	out := flag.String("out", filepath.Join("out", "release"), "directory to write to; emptied first")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := release(ctx, *out); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(ctx context.Context, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	tags, err := tagsHere(ctx, ".")
	if err != nil {
		return err
	}
	if err := checkModules(ctx, ".", tags); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var written []string
	for _, t := range targets {
		for _, program := range programs {
			path := filepath.Join(out, fmt.Sprintf("%s-%s-%s", filepath.Base(program), t.os, t.arch))
			if err := build(ctx, ".", program, path, t, "-buildvcs=true"); err != nil {
				return err
			}
			bill, err := writeBill(path)
			if err != nil {
				return err
			}
			written = append(written, path, bill)
		}
	}
	return writeSums(filepath.Join(out, "SHA256SUMS"), written)
}

// build makes a program from the sources in dir. Extra flags come last.
func build(ctx context.Context, dir, program, path string, t target, flags ...string) error {
	args := append([]string{"build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", path}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, program)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOOS="+t.os,
		"GOARCH="+t.arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s/%s: %w\n%s", program, t.os, t.arch, err, output)
	}
	return nil
}

// writeSums writes checksums in the form of `sha256sum --check`.
func writeSums(path string, files []string) error {
	var sums strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), filepath.Base(file))
	}
	return os.WriteFile(path, []byte(sums.String()), 0o644)
}

package main

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/restate/orderkey"
	"github.com/weirhq/weir/shared/reload"
)

// orderKeyBytesMax bounds order-key-file.
const orderKeyBytesMax = 64 << 10

// orderKeys returns the keys that sign orders through Restate: those in order-key-file, or, without a file, a random
// key of this process. files is nil without a file.
func (c *config) orderKeys() (keys *orderkey.Keys, files *reload.Files, err error) {
	if c.OrderKeyFile == "" {
		return orderkey.Random(), nil, nil
	}
	keys = &orderkey.Keys{}
	files, err = reload.OpenBounded([]string{c.OrderKeyFile}, orderKeyBytesMax, func(files []reload.File) error {
		if len(files) != 1 {
			return fmt.Errorf("%s is a folder, want a file", c.OrderKeyFile)
		}
		if err := keys.Replace(files[0].Content); err != nil {
			return fmt.Errorf("%s: %w", files[0].Path, err)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("order-key-file: %w", err)
	}
	return keys, files, nil
}

// keepOrderKeys reads order-key-file again when it changes, until the process ends.
func (p *process) keepOrderKeys(files *reload.Files) {
	controlplane.Every(p.ctx, reloadEvery, func(context.Context) error {
		switch changed, err := files.Check(); {
		case err != nil:
			p.log.Error("the changed order-key-file cannot be used; the previous keys stay in force", "error", err)
		case changed:
			p.log.Info("the keys of the changed order-key-file are in force")
		}
		return nil
	})
}

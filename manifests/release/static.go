package main

import (
	"debug/elf"
	"fmt"
)

// machines are the architectures of releases, by Go's names.
func machines() map[string]elf.Machine {
	return map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM, "riscv64": elf.EM_RISCV, "s390x": elf.EM_S390,
	}
}

// checkStatic returns an error unless the file at path is a static program for the architecture.
func checkStatic(path, arch string) error {
	want, ok := machines()[arch]
	if !ok {
		return fmt.Errorf("%s: there are no releases for the architecture %q", path, arch)
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	if f.Machine != want {
		return fmt.Errorf("%s is for %v, not for %s", path, f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return fmt.Errorf("%s is linked dynamically (%v): build it with CGO_ENABLED=0", path, p.Type)
		}
	}
	return nil
}

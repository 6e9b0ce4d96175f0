package route

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deadline is a kernel timer that kills this process when it expires, even if the process is stopped (timer_create(2) with
// SIGKILL), unless extended. IPv4 routes have no lifetime of their own. The kernel does not kill the first process of a
// PID namespace this way.
type deadline struct {
	id  int32
	set bool
}

// extend moves the deadline to Patience from now.
func (d *deadline) extend() error {
	if os.Getpid() == 1 {
		return errors.New("the kernel does not kill process 1 when it is stopped: set shareProcessNamespace: true for the pod, or run herald under an init")
	}
	if !d.set {
		event := sigevent{signal: int32(unix.SIGKILL)}
		if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&d.id))); errno != 0 {
			return fmt.Errorf("create a timer: %w", errno)
		}
		d.set = true
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(Patience.Nanoseconds())}
	if _, _, errno := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(d.id), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("set a timer: %w", errno)
	}
	return nil
}

// end removes the deadline.
func (d *deadline) end() error {
	if !d.set {
		return nil
	}
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(d.id), 0, 0); errno != 0 {
		return fmt.Errorf("delete a timer: %w", errno)
	}
	d.set = false
	return nil
}

// sigevent is struct sigevent of linux/siginfo.h, with 64 bytes. Zero in notify means SIGEV_SIGNAL.
type sigevent struct {
	value          uintptr
	signal, notify int32
	_              [64 - unsafe.Sizeof(uintptr(0)) - 8]byte
}

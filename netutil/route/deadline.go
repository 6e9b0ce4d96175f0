package route

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deadline is a timer in the kernel that kills this process when it goes off, even if it is stopped (timer_create(2) with
// SIGKILL), unless it is extended. The kernel has no such thing for IPv4 routes, and does not kill the first process of a
// namespace like this.
type deadline struct {
	id  int32
	set bool
}

// extend puts the deadline off until Patience from now.
func (d *deadline) extend() error {
	if os.Getpid() == 1 {
		return errors.New("the kernel does not end process 1 when it stands still: give the pod shareProcessNamespace: true, or herald an init")
	}
	if !d.set {
		event := sigevent{signal: int32(unix.SIGKILL)}
		if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&d.id))); errno != 0 {
			return fmt.Errorf("make a timer: %w", errno)
		}
		d.set = true
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(Patience.Nanoseconds())}
	if _, _, errno := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(d.id), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("set a timer: %w", errno)
	}
	return nil
}

// end takes the deadline away.
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

// sigevent is struct sigevent of linux/siginfo.h, of 64 bytes; its zero value of notify is SIGEV_SIGNAL.
type sigevent struct {
	value          uintptr
	signal, notify int32
	_              [64 - unsafe.Sizeof(uintptr(0)) - 8]byte
}

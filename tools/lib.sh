# What build.sh and test.sh share: packages and build folders. POSIX sh, read with `.`; expects to be in the
# top folder of the source.

say()
{
    printf '%s\n' "$*"
}

die()
{
    printf '%s: %s\n' "$program" "$*" >&2
    exit 3
}

misuse()
{
    printf '%s: %s\n' "$program" "$*" >&2
    exit 2
}

# Debian 12 package, and a command that succeeds where it is not needed any more.
packages_build='
gcc             command -v gcc
libc6-dev       have_header stdio.h
meson           command -v meson
ninja-build     command -v ninja
pkg-config      command -v pkg-config
libjansson-dev  pkg-config --exists jansson
libxxhash-dev   pkg-config --exists libxxhash
libhwloc-dev    pkg-config --exists hwloc
libmicrohttpd-dev pkg-config --exists libmicrohttpd
libgnutls28-dev pkg-config --exists gnutls
'
packages_test='
libcmocka-dev   pkg-config --exists cmocka
libpcre2-dev    pkg-config --exists libpcre2-8
libsimde-dev    have_header simde/x86/avx512.h
xz-utils        command -v xz
binutils        command -v nm
g++             command -v g++
git             command -v git
clang-format-14 command -v clang-format-14
'
packages_all='
clang-14        command -v clang-14
clang-tidy-14   command -v clang-tidy-14
python3-numpy   have_numpy
qemu-user       command -v qemu-x86_64
'
packages_soak='
libclang-rt-14-dev have_libfuzzer
valgrind        command -v valgrind
'

have_header()
{
    printf '#include <%s>\n' "$1" | gcc -E -o /dev/null -x c - 2>/dev/null
}

have_numpy()
{
    /usr/bin/python3 -c 'import numpy' || python3 -c 'import numpy'
}

have_libfuzzer()
{
    [ -f "$(clang-14 --print-file-name=libclang_rt.fuzzer-x86_64.a)" ]
}

# as_root COMMAND...: runs it as root, or fails.
as_root()
{
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        return 1
    fi
}

# apt_install PACKAGE...: from Debian's archive, with lists as old as they are, or new ones if need be.
apt_install()
{
    set -- env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
        install -y --no-install-recommends "$@"
    as_root "$@" </dev/null >"$install_log" 2>&1 && return 0
    as_root apt-get -o DPkg::Lock::Timeout=300 update </dev/null >>"$install_log" 2>&1 || return 1
    as_root "$@" </dev/null >>"$install_log" 2>&1
}

# need_packages LIST: installs what is missing of one of the lists above.
need_packages()
{
    missing=
    while read -r package probe; do
        [ -n "$package" ] || continue
        eval "$probe" </dev/null >/dev/null 2>&1 || missing="$missing $package"
    done <<END
$1
END
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null 2>&1 ||
        die "missing:$missing (names of Debian 12 packages); install them or their like and run this again"
    say "installing:$missing"
    install_log=$(mktemp)
    # shellcheck disable=SC2086 # a list of words
    if ! apt_install $missing; then
        tail -n 20 "$install_log" >&2
        rm -f "$install_log"
        die "cannot install:$missing; as root run: apt-get update && apt-get install$missing"
    fi
    rm -f "$install_log"
}

jobs()
{
    n=$(nproc 2>/dev/null) || n=2
    say "$n"
}

# configure DIR COMPILER OPTIONS...: a meson build folder with these options; does nothing when it has them.
configure()
{
    dir=$1
    compiler=$2
    shift 2
    wanted="$compiler $*"
    if [ -f "$dir/build.ninja" ]; then
        [ "$(cat "$dir/.configured" 2>/dev/null)" != "$wanted" ] || return 0
        meson configure "$dir" "$@" >"$dir/configure.log" 2>&1 || {
            cat "$dir/configure.log" >&2
            die "$dir: cannot be configured"
        }
    else
        mkdir -p "$dir"
        CC=$compiler meson setup "$dir" "$@" >"$dir/configure.log" 2>&1 || {
            cat "$dir/configure.log" >&2
            die "$dir: cannot be set up"
        }
    fi
    say "$wanted" >"$dir/.configured"
}

# build DIR [TARGET...]: says something only when it fails.
build()
{
    dir=$1
    shift
    ninja -C "$dir" -j "$(jobs)" "$@" >"$dir/build.log" 2>&1 && return 0
    sed -n '/^FAILED:\|error:\|ERROR:/,$p' "$dir/build.log" | grep -v '^\[[0-9/]*\] ' | head -n 200
    return 1
}

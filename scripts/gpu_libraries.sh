# Sourced by gpu_deps.sh and gpu_pack.sh.
# Of the C and C++ run-time libraries, which come with the compiler.
on_every_machine='^(lib(c|m|dl|rt|pthread)\.so\.[0-9]+|ld-linux-x86-64\.so\.2|lib(stdc\+\+|gcc_s|gomp)\.so\.[0-9]+)$'

"""Draw every committed figure again, from committed files alone: `make figures`."""

from experiments.rebuild import main

if __name__ == "__main__":
    main()

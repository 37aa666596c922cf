"""Draw every committed figure again, from committed files alone: `make figures`."""

from pcr_exp.runners.redraw import main

if __name__ == "__main__":
    main()

"""What a user gets without choosing, beside the best choice by hand."""
